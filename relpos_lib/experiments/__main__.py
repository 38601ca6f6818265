"""``python -m relpos_lib.experiments``."""

import sys

from relpos_lib.experiments.cli import main

if __name__ == "__main__":
    sys.exit(main())
