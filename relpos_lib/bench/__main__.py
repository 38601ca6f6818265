"""``python -m relpos_lib.bench``."""

from relpos_lib.bench.cli import main

raise SystemExit(main())
