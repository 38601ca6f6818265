"""On a CUDA device: equality with the definition, for all kernels that may be chosen.

The reference is the gather backend in float64, which test_backends.py compares with the
definition. Nothing here runs without a GPU; with one, ``pytest -m gpu`` takes minutes,
most of them to compile FlexAttention.
"""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from relpos_lib import relative_attention
from relpos_lib.backends import flex
from relpos_lib.backends.near_far import cuda_kernels
from relpos_lib.backends.near_far.cuda_kernels import HALF
from relpos_lib.backends.near_far.kernels import Attended, Blockwise, nothing_visible
from tests import cases
from tests.cases import numbers

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

# Largest error as a share of the largest number. Kernels round weights to the dtype of
# the inputs before they average; that is a few units.
TOLERANCES = {torch.float32: 5e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}
DTYPES = pytest.mark.parametrize("dtype", TOLERANCES, ids=str)
KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "blockwise": SDPBackend.MATH,
}
OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "padding": {"mask": True},
    "causal padding": {"is_causal": True, "mask": True},
    "negative scale": {"scale": -0.2},
    "no scale": {"scale": 0.0},
}
LENGTHS = [(1, 700), (129, 129), (512, 1024), (1031, 1499)]
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
each_length = pytest.mark.parametrize("lengths", LENGTHS, ids=str)


def on_cuda(dtype, lengths, *, mask=False, width=64, tables=("bias", "keys", "values")):
    """A case of moderate size; the mask hides half of the keys, and one batch whole."""
    case = cases.inputs(
        2,
        3,
        *lengths,
        width,
        width,
        bias=7 if "bias" in tables else None,
        keys=11 if "keys" in tables else None,
        values=5 if "values" in tables else None,
        dtype=dtype,
    )
    if mask:
        case["mask"] = numbers(2, 1, 1, lengths[1], seed=4) > 0
        case["mask"][1] = False
    return {name: x.cuda() for name, x in case.items()}


def reference(case):
    """Output and gradients by the gather backend in float64."""
    wide = {name: x.double() for name, x in cases.tensors_of(case).items()}
    gather = partial(relative_attention, backend="gather")
    return outcome(gather, {**case, **wide})


def outcome(function, case):
    """As ``cases.outcome``, for a case on a GPU."""
    leaves = {n: x.clone().requires_grad_() for n, x in cases.tensors_of(case).items()}
    out = function(**{**case, **leaves})
    direction = numbers(*out.shape, seed=7).to(torch.bfloat16).to(out)
    found = {"output": out.detach()}
    if out.requires_grad:
        found |= zip(
            leaves,
            torch.autograd.grad(out, list(leaves.values()), direction),
            strict=True,
        )
    return found


def compare(backend, dtype, case):
    found = outcome(partial(relative_attention, backend=backend), case)
    assert {x.dtype for x in found.values()} == {dtype}
    cases.assert_same(found, reference(case), TOLERANCES[dtype], terms=1.0)


@DTYPES
@each_option
@each_length
def test_near_and_far_parts(dtype, options, lengths):
    mask = options.get("mask", False)
    case = on_cuda(dtype, lengths, mask=mask)
    rest = {name: x for name, x in options.items() if name != "mask"}
    compare("near_far", dtype, {**case, **rest})


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@DTYPES
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("width", [12, 64, 128, 264])
def test_near_and_far_parts_with_each_kernel(kernel, dtype, is_causal, width):
    case = on_cuda(dtype, (1031, 1031), width=width)
    with sdpa_kernel(kernel):
        compare("near_far", dtype, {**case, "is_causal": is_causal})


@DTYPES
@pytest.mark.parametrize("has_hidden", [False, True])
@pytest.mark.parametrize("kind", [cuda_kernels.Flash, cuda_kernels.Efficient])
@pytest.mark.parametrize("rows", [1, 31, 64, 257])
@pytest.mark.parametrize("keys", [1, 33, 128, 300])
def test_a_kernel_is_attention_and_its_part_of_the_gradient(
    kind, dtype, has_hidden, rows, keys
):
    shape = (2, 3, rows, 64), (2, 3, keys, 64), (2, 3, keys, 64), (2, 3, rows, 64)
    query, key, value, grad = (
        numbers(*one, seed=n, dtype=dtype).cuda() for n, one in enumerate(shape)
    )
    if not kind.serves(cuda_kernels.request_of(query[:, 0], has_hidden)):
        pytest.skip("this kernel does not serve that")
    hidden = None
    if has_hidden:
        visible = numbers(2, 3, 1, keys, seed=5).cuda() > 0
        visible[0, 1] = False
        hidden = torch.zeros(visible.shape, device="cuda").masked_fill(
            ~visible, -torch.inf
        )
    wide = [x.double() for x in (query, key, value)]
    found = kind().forward(query, key, value, hidden, 0.3)
    wanted = Blockwise().forward(*wide, hidden, 0.3)
    assert found.logsumexp.shape == (2, 3, rows)
    assert found.logsumexp.dtype == torch.float32
    logsumexp = found.logsumexp + 1  # as if other keys had been seen too
    logsumexp[..., 0] = torch.inf  # and by one query none
    if hidden is not None:
        unseen = nothing_visible(hidden).expand(2, 3, rows)
        assert (found.logsumexp[unseen] == -torch.inf).all()
        assert (found.out[unseen] == 0).all()
        wanted.out[unseen] = 0
        for one in (found.logsumexp, wanted.logsumexp, logsumexp):
            one[unseen] = 0
    tolerance = TOLERANCES[dtype]
    cases.assert_equal(found.out, wanted.out, tolerance)
    cases.assert_equal(found.logsumexp, wanted.logsumexp, tolerance)

    whole = Attended(found.out, logsumexp)
    parts = kind().backward(grad, query, key, value, whole, hidden, 0.3)
    wanted = Blockwise().backward(
        grad.double(),
        *wide,
        Attended(whole.out.double(), logsumexp.double()),
        hidden,
        0.3,
    )
    # With one key its gradients cancel; what is left is the rounding of their terms.
    cases.assert_same(parts._asdict(), wanted._asdict(), tolerance, terms=1.0)


@pytest.mark.parametrize("dtype", HALF, ids=str)
def test_half_precision_uses_flash_attention(dtype):
    query = torch.zeros(2, 5, 64, dtype=dtype, device="cuda")
    if torch.cuda.get_device_capability() < (8, 0):
        pytest.skip("flash attention needs a newer device")
    kernel = cuda_kernels.cuda_kernel_for(query, False)
    assert type(kernel) is cuda_kernels.Flash
    assert type(cuda_kernels.cuda_kernel_for(query, True)) is cuda_kernels.Efficient


def test_float64_is_exact():
    case = on_cuda(torch.float64, (301, 353))
    for backend in ("near_far", "gather"):
        found = outcome(partial(relative_attention, backend=backend), case)
        cases.assert_same(found, reference(case), 1e-10)


@DTYPES
@pytest.mark.parametrize("is_causal", [False, True])
@each_length
def test_a_bias_read_through_a_view(dtype, is_causal, lengths):
    case = on_cuda(dtype, lengths, tables=("bias",))
    compare("strided", dtype, {**case, "is_causal": is_causal})


@pytest.fixture
def compiled_anew():
    """What is compiled by one test counts towards no limit of another."""
    torch._dynamo.reset()
    flex._compiled.cache_clear()


@pytest.mark.usefixtures("compiled_anew")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["plain", "causal", "padding", "negative scale"])
@pytest.mark.parametrize("tables", [("keys",), ("bias", "keys")], ids=str)
def test_flex_attention(dtype, name, tables):
    options = dict(OPTIONS[name])
    mask = options.pop("mask", False)
    for lengths in ((129, 129), (512, 1024), (509, 700)):
        case = on_cuda(dtype, lengths, mask=mask, tables=tables)
        compare("flex", dtype, {**case, **options})


@pytest.mark.usefixtures("compiled_anew")
@pytest.mark.parametrize("shape", [(301, 301), (1, 301), (301, 1)], ids=str)
def test_flex_attention_with_a_mask_of_pairs(shape):
    case = on_cuda(torch.float32, (301, 301), tables=("bias", "keys"))
    case["mask"] = (numbers(2, 3, *shape, seed=6) > 0).cuda()
    compare("flex", torch.float32, case)


@pytest.mark.usefixtures("compiled_anew")
@pytest.mark.parametrize("backend", ["near_far", "strided", "flex"])
def test_long_sequences_on_sampled_rows(backend):
    length, tables = 8192, ("bias",) if backend == "strided" else ("bias", "keys")
    case = on_cuda(torch.bfloat16, (length, length), tables=tables)
    out = relative_attention(**case, is_causal=True, backend=backend)
    for row in (0, 1, 127, 128, 4095, 5000, length - 1):
        one = {name: x.double() for name, x in case.items()}
        one["query"] = one["query"][:, :, row : row + 1]
        wanted = relative_attention(
            **one, is_causal=True, query_start=row, backend="gather"
        )
        cases.assert_equal(out[:, :, row : row + 1], wanted, TOLERANCES[torch.bfloat16])
