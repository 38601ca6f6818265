"""English text that every Python ships, as numbers: no download, no licence to ask for.

It is the help on Python's own topics. It differs between versions of Python, so results
carry its fingerprint and are compared only where that is the same.

Topics quote each other: in Python 3.11 a fifth of the characters that perplexity is
measured on also stand in the training text. So it is a little too good, but for all
schemes alike.
"""

from __future__ import annotations

import hashlib
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

# Newline, space and what is visible in ASCII; anything else becomes the last one.
ALPHABET = "\n" + "".join(map(chr, range(32, 127))) + "\ufffd"
HELD_OUT = 10  # every tenth topic is for testing
# What is predicted in testing begins here, so that the longest window has text before.
BEFORE = 4096


class Text(NamedTuple):
    """Text as numbers.

    Attributes:
        training: characters to learn from, (N,), uint8.
        testing: characters of other topics, (M,), uint8.
        fingerprint: SHA-256 of all of it.
    """

    training: Tensor
    testing: Tensor
    fingerprint: str


@cache
def text() -> Text:
    """The text of this Python."""
    from pydoc_data.topics import topics

    names = sorted(topics)
    training = "\n".join(topics[n] for i, n in enumerate(names) if i % HELD_OUT)
    testing = "\n".join(topics[n] for i, n in enumerate(names) if i % HELD_OUT == 0)
    digest = hashlib.sha256((training + "\0" + testing).encode()).hexdigest()
    return Text(encoded(training), encoded(testing), digest)


def encoded(string: str) -> Tensor:
    """Place of each character in the alphabet, (N,), uint8.

    >>> encoded("\\nA é")
    tensor([ 0, 34,  1, 96], dtype=torch.uint8)
    """
    places = {character: place for place, character in enumerate(ALPHABET)}
    other = len(ALPHABET) - 1
    return torch.tensor([places.get(c, other) for c in string], dtype=torch.uint8)
