"""What a step of decoding must return."""

from __future__ import annotations

from typing import Any

from relpos_lib.exercises.report import expect, expect_given


def output_and_cache(answer: Any) -> tuple[Any, tuple[Any, Any]]:
    """Output and cache of a step; a gap in either is a gap."""
    expect_given(answer)
    message = "return the output and the cache: out, (keys, values)"
    expect(isinstance(answer, tuple) and len(answer) == 2, message)
    out, cache = answer
    expect_given(out)
    expect_given(cache)
    expect(isinstance(cache, (tuple, list)) and len(cache) == 2, message)
    for part in cache:
        expect_given(part)
    return out, (cache[0], cache[1])
