"""``python -m relpos_lib.experiments``."""

import sys

EXTRAS = ("lightning_fabric", "matplotlib", "safetensors", "tqdm")


def run() -> int:
    """The command, or what to install for it."""
    try:
        from relpos_lib.experiments.cli import main

        return main()
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        if name not in EXTRAS:
            raise
        need = 'pip install "relpos_lib[experiments]"'
        print(f"{name} is not installed; {need}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(run())
