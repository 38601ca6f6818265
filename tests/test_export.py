"""torch.export and ONNX: the same numbers at lengths that were not exported."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from relpos_lib import (
    ALiBi,
    RelativeMultiHeadAttention,
    RPETransformerBlock,
    SimpleBiasRPE,
    relative_attention,
)

WIDTH = 6
OTHER_LENGTHS = [1, 2, 5, 13, 40]


class SelfShaw(nn.Module):
    """Shaw's attention of a sequence to itself."""

    def __init__(self, is_causal=False, **options):
        super().__init__()
        self.is_causal = is_causal
        self.attention = RelativeMultiHeadAttention(WIDTH, 2, 3, **options)

    def forward(self, x):
        return self.attention(x, x, x, is_causal=self.is_causal)


class Padded(SelfShaw):
    """The same with a mask."""

    def forward(self, x, mask):
        return self.attention(x, x, x, mask=mask, is_causal=self.is_causal)


class Step(SelfShaw):
    """The newest token over a cache."""

    def forward(self, x):
        return self.attention(x[:, -1:], x, x, is_causal=True)


class Biased(nn.Module):
    """The function with a bias table."""

    def __init__(self, rpe):
        super().__init__()
        self.rpe = rpe

    def forward(self, x):
        heads = x.unflatten(-1, (2, 3)).transpose(1, 2)
        return relative_attention(heads, heads, heads, **self.rpe.tables(9))


MODULES = {
    "shaw": SelfShaw(),
    "shaw, causal, a K per head": SelfShaw(True, max_future_positions=[1, 4]),
    "step": Step(),
    "block": RPETransformerBlock(WIDTH, 2, 4).eval(),
    "simple": Biased(SimpleBiasRPE(2, 4)),
    "alibi": Biased(ALiBi(2)),
}


def sequence(length, batch=2):
    generator = torch.Generator().manual_seed(length)
    return torch.randn(batch, length, WIDTH, generator=generator)


@pytest.mark.parametrize("name", MODULES)
def test_export_with_dynamic_lengths(name):
    module = MODULES[name]
    shapes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    exported = torch.export.export(module, (sequence(7),), dynamic_shapes=(shapes,))
    for length in OTHER_LENGTHS:
        for batch in (1, 3):
            x = sequence(length, batch)
            torch.testing.assert_close(exported.module()(x), module(x))


def test_export_with_a_mask():
    module, length = Padded(), Dim("length", min=2)
    exported = torch.export.export(
        module,
        (sequence(7), torch.ones(2, 1, 1, 7, dtype=torch.bool)),
        dynamic_shapes=({1: length}, {3: length}),
    )
    for n in OTHER_LENGTHS[1:]:
        mask = torch.rand(2, 1, 1, n, generator=torch.Generator().manual_seed(n)) < 0.5
        mask[1] = False
        x = sequence(n)
        torch.testing.assert_close(exported.module()(x, mask), module(x, mask))


def in_onnxruntime(module, example, dynamic_shapes, tmp_path):
    """The module as a function that onnxruntime computes."""
    onnxruntime = pytest.importorskip("onnxruntime")
    path = tmp_path / "model.onnx"
    torch.onnx.export(
        module,
        example,
        path,
        dynamo=True,
        dynamic_shapes=dynamic_shapes,
        verbose=False,
    )
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_inputs()]

    def run(*tensors):
        feed = {n: t.numpy() for n, t in zip(names, tensors, strict=True)}
        return session.run(None, feed)[0]

    return run


def assert_close(found, wanted):
    np.testing.assert_allclose(found, wanted.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_onnx_at_other_lengths(tmp_path):
    module = MODULES["shaw"].eval()
    shapes = ({1: Dim("length", min=1)},)
    run = in_onnxruntime(module, (sequence(7),), shapes, tmp_path)
    for length in OTHER_LENGTHS:
        x = sequence(length)
        assert_close(run(x), module(x))


def test_onnx_with_a_causal_mask_and_one_that_hides_everything(tmp_path):
    module, length = Padded(is_causal=True).eval(), Dim("length", min=2)
    example = (sequence(7), torch.ones(2, 1, 1, 7, dtype=torch.bool))
    run = in_onnxruntime(module, example, ({1: length}, {3: length}), tmp_path)
    for n in OTHER_LENGTHS[1:]:
        mask = torch.rand(2, 1, 1, n, generator=torch.Generator().manual_seed(n)) < 0.5
        mask[1] = False
        x = sequence(n)
        assert_close(run(x, mask), module(x, mask))
