"""Which backend ``"auto"`` takes, and why.

The numbers in the rule were measured: ``python -m relpos_lib.bench`` shows how far the
choice is from the best backend in every case.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from relpos_lib._checks import is_transformed
from relpos_lib.backends import strided
from relpos_lib.backends.inputs import Inputs
from relpos_lib.backends.near_far.attention import serves as has_parts
from relpos_lib.offsets import own_distance

VERY_SHORT = 64  # so few keys cost nothing in any form, and gather can do most
FEW_QUERIES = 128  # so many or more make a tile of the near_far backend worth it
SHORT = 256  # so many keys more than K, and the far keys are worth a separate call
LONG = 2048  # from here on a trained bias is cheaper in parts than densely


class Choice(NamedTuple):
    """A backend and the reason for it, in words.

    Attributes:
        backend: name of the backend.
        reason: why this one.
    """

    backend: str
    reason: str


def choose(inputs: Inputs) -> Choice:
    """The backend that ``"auto"`` takes for checked inputs."""
    if _is_exporting():
        return Choice("gather", "an exported graph is made of plain operations")
    if inputs.dropout_p > 0:
        return Choice("gather", "dropout needs every weight")
    if is_transformed():
        return Choice("gather", "forward mode and torch.func need plain operations")
    if not has_parts(inputs):
        return Choice("gather", "the mask differs from query to query")
    queries, keys = inputs.query.shape[2], inputs.key.shape[2]
    distance = _distance(inputs)
    few = queries < FEW_QUERIES
    if keys < VERY_SHORT:
        return Choice("gather", f"fewer than {VERY_SHORT} keys")
    if strided.serves(inputs):
        if keys >= LONG and not few and keys >= 8 * distance and _trains_bias(inputs):
            return Choice(
                "near_far", f"a trained bias with K = {distance}, far below S"
            )
        return Choice(
            "strided", "a bias is all there is: the kernel reads it as a view"
        )
    if few:
        return Choice("gather", f"fewer than {FEW_QUERIES} queries")
    if keys < SHORT + distance:
        return Choice("gather", f"hardly any keys are farther than K = {distance}")
    return Choice("near_far", f"most keys are farther than K = {distance}")


def _is_exporting() -> bool:
    """Whether a graph is being written down; old versions cannot tell that alone."""
    asked = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)
    return bool(asked())


def _distance(inputs: Inputs) -> int:
    """The largest K of the tables; 0 without any."""
    rows = [1]
    if inputs.bias_table is not None:
        rows.append(inputs.bias_table.shape[1])
    for table in (inputs.key_table, inputs.value_table):
        if table is not None:
            rows.append(table.shape[-2])
    return own_distance("table", max(rows))


def _trains_bias(inputs: Inputs) -> bool:
    table = inputs.bias_table
    return torch.is_grad_enabled() and table is not None and table.requires_grad
