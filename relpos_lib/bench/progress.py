"""Progress on stderr: a bar if tqdm is installed, lines if it is not."""

from __future__ import annotations

import sys
from types import TracebackType


class Progress:
    """Counts steps and says what is being done.

    Args:
        total: how many steps there are.
    """

    def __init__(self, total: int) -> None:
        try:
            from tqdm import tqdm
        except ImportError:
            self._bar = None
        else:
            self._bar = tqdm(total=total, unit="case", file=sys.stderr)

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.close()

    def tell(self, text: str) -> None:
        """Say what is done next."""
        if self._bar is None:
            print(text, file=sys.stderr, flush=True)
        else:
            self._bar.set_postfix_str(text)

    def step(self, text: str) -> None:
        """Print the result of a step to stdout and count it."""
        if self._bar is None:
            print(text, flush=True)
            return
        self._bar.clear()
        print(text, flush=True)
        self._bar.update()
