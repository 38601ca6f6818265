"""The kernels for CUDA devices, with operators that compute the same on a CPU."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from relpos_lib import relative_attention
from relpos_lib.backends.near_far import attention as near_far
from relpos_lib.backends.near_far import cuda_kernels, far
from relpos_lib.backends.near_far.cuda_kernels import (
    HALF,
    Efficient,
    Flash,
    Request,
    aligned,
    chosen,
    cuda_kernel_for,
    rounded_width,
)
from relpos_lib.backends.near_far.kernels import Attended, Blockwise
from tests import cases
from tests.cases import numbers
from tests.dense_operators import DenseEfficient, DenseFlash

N, M, ROWS, KEYS, D = 3, 2, 37, 53, 16
AMPERE, TURING = (8, 0), (7, 5)


@pytest.fixture
def dense(monkeypatch):
    """Operators to count the calls of, by the name of the real one."""
    found = {Flash.name: DenseFlash(), Efficient.name: DenseEfficient()}
    monkeypatch.setattr(
        cuda_kernels,
        "operators",
        lambda name: (found[name].forward, found[name].backward),
    )
    return found


def tensors(dtype, *, rows=ROWS, keys=KEYS, width=D):
    shapes = (N, M, rows, width), (N, M, keys, width), (N, M, keys, width)
    return [numbers(*shape, seed=n, dtype=dtype) for n, shape in enumerate(shapes)]


def hidden_keys(dtype, keys=KEYS):
    """A mask of keys; the second head of the first group sees nothing."""
    visible = numbers(N, M, 1, keys, seed=5) > 0
    visible[0, 1] = False
    return torch.zeros(N, M, 1, keys, dtype=dtype).masked_fill(~visible, -torch.inf)


def tolerance_of(dtype):
    return max(1e-5, 2 * torch.finfo(dtype).eps)


CASES = [
    *((Flash, dtype, False) for dtype in HALF),
    *(
        (Efficient, dtype, is_hidden)
        for dtype in (torch.float32, *HALF)
        for is_hidden in (False, True)
    ),
]


@pytest.mark.parametrize("scale", [0.3, -0.7, 0.0])
@pytest.mark.parametrize(("make", "dtype", "has_hidden"), CASES)
def test_a_kernel_is_attention(dense, make, dtype, has_hidden, scale):
    query, key, value = tensors(dtype)
    hidden = hidden_keys(dtype) if has_hidden else None
    wide = [x.double() for x in (query, key, value)]
    wanted = Blockwise().forward(
        *wide, None if hidden is None else hidden.double(), scale
    )
    found = make().forward(query, key, value, hidden, scale)
    assert found.out.dtype == dtype
    assert found.logsumexp.dtype == torch.float32
    assert found.logsumexp.shape == (N, M, ROWS)
    if has_hidden:
        assert (found.logsumexp[0, 1] == -torch.inf).all()
        assert (found.out[0, 1] == 0).all()
        wanted.out[0, 1] = 0
        for one in (found, wanted):
            one.logsumexp[0, 1] = 0
    cases.assert_equal(found.out, wanted.out, tolerance_of(dtype))
    cases.assert_equal(found.logsumexp, wanted.logsumexp, 1e-5)
    assert dense[make.name].calls == 1


@pytest.mark.parametrize("scale", [0.3, -0.7, 0.0])
@pytest.mark.parametrize(("make", "dtype", "has_hidden"), CASES)
def test_a_kernel_has_the_gradients_of_its_part(dense, make, dtype, has_hidden, scale):
    query, key, value = tensors(dtype)
    grad = numbers(N, M, ROWS, D, seed=8, dtype=dtype)
    hidden = hidden_keys(dtype) if has_hidden else None
    # As if other keys had been seen too, and by one query none.
    logsumexp = 3 + numbers(N, M, ROWS, seed=9, dtype=torch.float32).abs()
    logsumexp[0, 0, 0] = torch.inf
    whole = Attended(numbers(N, M, ROWS, D, seed=10, dtype=dtype), logsumexp)
    wanted = Blockwise().backward(
        *(x.double() for x in (grad, query, key, value)),
        Attended(*(x.double() for x in whole)),
        None if hidden is None else hidden.double(),
        scale,
    )
    found = make().backward(grad, query, key, value, whole, hidden, scale)
    for name, one, other in zip(found._fields, found, wanted, strict=True):
        assert one.dtype == dtype, name
        assert one.shape == other.shape, name
        cases.assert_equal(one, other, tolerance_of(dtype))


@pytest.mark.parametrize("make", [Flash, Efficient])
@pytest.mark.parametrize("rows", [1, 32, 33])
@pytest.mark.parametrize("keys", [1, 16, 17])
def test_any_number_of_queries_and_keys(dense, make, rows, keys):
    query, key, value = tensors(torch.bfloat16, rows=rows, keys=keys)
    hidden = None if make is Flash else hidden_keys(torch.bfloat16, keys)
    found = make().forward(query, key, value, hidden, 0.3)
    make().backward(query, query, key, value, found, hidden, 0.3)


@pytest.mark.parametrize("make", [Flash, Efficient])
def test_any_layout_is_brought_into_the_one_that_is_read(dense, make):
    odd = torch.randn(N, M, ROWS + KEYS, 2 * D + 1).bfloat16()
    query, key, value = (
        odd[:, :, :ROWS, 1 : D + 1],
        odd[:, :, ROWS:, :D],
        odd[:, :, -KEYS:, D:-1],
    )
    whole = make().forward(query, key, value, None, 0.3)
    wanted = make().forward(*(x.contiguous() for x in (query, key, value)), None, 0.3)
    assert torch.equal(whole.out, wanted.out)
    turned = Attended(whole.out.mT.contiguous().mT, whole.logsumexp.mT.contiguous().mT)
    grad = query.mT.contiguous().mT
    found = make().backward(grad, query, key, value, turned, None, 0.3)
    wanted = make().backward(
        *(x.contiguous() for x in (grad, query, key, value)), whole, None, 0.3
    )
    assert all(
        torch.equal(one, other) for one, other in zip(found, wanted, strict=True)
    )


def test_rectangles_are_read_where_they_lie():
    x = torch.zeros(2, 64, 16, dtype=torch.bfloat16)
    rectangles = x.as_strided((2, 3, 8, 16), (1024, 256, 16, 1), 160)
    assert aligned(rectangles) is rectangles


def request(**changes):
    usual = Request("cuda", AMPERE, torch.bfloat16, 8, 64, False)
    return usual._replace(**changes)


@pytest.fixture
def built(monkeypatch):
    """As if this PyTorch were built for CUDA, with both kinds of kernels."""
    monkeypatch.setattr(cuda_kernels, "has_operators", lambda name: True)
    monkeypatch.setattr(cuda_kernels, "flash_is_built", lambda: True)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({}, Flash),
        ({"dtype": torch.float16}, Flash),
        ({"capability": (9, 0)}, Flash),
        ({"dtype": torch.float32}, Efficient),
        ({"has_hidden": True}, Efficient),
        ({"width": 256}, Flash),
        ({"width": 264}, Efficient),
        ({"capability": TURING, "dtype": torch.float16}, Efficient),
        ({"capability": TURING, "dtype": torch.float32}, Efficient),
        ({"capability": TURING}, None),
        ({"dtype": torch.float64}, None),
        ({"width": 20}, None),
        ({"heads": 65_536}, None),
        ({"device_type": "cpu"}, None),
        ({"device_type": "hip"}, None),
        ({"device_type": "mps"}, None),
    ],
    ids=str,
)
@pytest.mark.usefixtures("built")
def test_the_fastest_kernel_that_serves_is_chosen(changes, kind):
    found = chosen(request(**changes))
    assert found is None if kind is None else type(found) is kind


@pytest.mark.usefixtures("built")
def test_what_is_switched_off_is_not_chosen():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.EFFICIENT_ATTENTION):
        assert type(chosen(request())) is Efficient
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert type(chosen(request())) is Flash
        assert chosen(request(dtype=torch.float32)) is None
    with sdpa_kernel(SDPBackend.MATH):
        assert chosen(request()) is None


def test_what_is_not_built_is_not_chosen(monkeypatch):
    monkeypatch.setattr(cuda_kernels, "has_operators", lambda name: True)
    monkeypatch.setattr(cuda_kernels, "flash_is_built", lambda: False)
    assert type(chosen(request())) is Efficient
    monkeypatch.setattr(cuda_kernels, "has_operators", lambda name: False)
    assert chosen(request()) is None


def test_a_cpu_needs_none_of_it():
    query = torch.zeros(2, 3, 5)
    assert cuda_kernel_for(query, False) is None
    assert rounded_width(5, query.device) == 5
    assert rounded_width(5, torch.device("cuda")) == 8
    assert rounded_width(64, torch.device("cuda")) == 64


@pytest.mark.parametrize("name", [Flash.name, Efficient.name])
def test_pytorch_has_the_operators(name):
    forward, backward = cuda_kernels.operators(name)
    assert forward.name() == f"aten::{name}"
    assert backward.name() == f"aten::{name}_backward"


@pytest.fixture
def as_if_on_cuda(monkeypatch, dense):
    """The near_far backend on a CPU, with the kernels that a new GPU would choose."""
    monkeypatch.setattr(cuda_kernels, "has_operators", lambda name: True)
    monkeypatch.setattr(cuda_kernels, "flash_is_built", lambda: True)
    monkeypatch.setattr(
        far,
        "cuda_kernel_for",
        lambda query, has_hidden: chosen(
            cuda_kernels.request_of(query, has_hidden)._replace(
                device_type="cuda", capability=(9, 0)
            )
        ),
    )
    monkeypatch.setattr(
        near_far, "rounded_width", lambda width, device: rounded_width(width, CUDA)
    )
    return dense


CUDA = torch.device("cuda")
OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "padding": {"mask": True},
    "causal-padding": {"is_causal": True, "mask": True},
    "negative-scale": {"scale": -0.4},
}


def long_case(dtype, *, mask=False, q_len=301, k_len=353, **options):
    """Some far rectangles of each kind; lengths and widths fit nothing."""
    case = cases.inputs(2, 3, q_len, k_len, 5, 7, bias=3, keys=5, values=2, dtype=dtype)
    if mask:
        visible = numbers(2, 1, 1, k_len, seed=4) > 0
        visible[1] = False
        case["mask"] = visible
    return {**case, **options}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("dtype", [torch.float32, *HALF], ids=str)
def test_the_backend_is_the_definition_with_these_kernels(
    as_if_on_cuda, dtype, options, monkeypatch
):
    monkeypatch.setattr("relpos_lib.backends.near_far.operator.TILE", 32)
    case = long_case(dtype, **options)
    wide = {n: x.double() for n, x in cases.tensors_of(case).items()}
    found = cases.outcome(partial(relative_attention, backend="near_far"), case)
    uses_flash = dtype in HALF and "mask" not in case
    used = as_if_on_cuda[Flash.name if uses_flash else Efficient.name]
    unused = as_if_on_cuda[Efficient.name if uses_flash else Flash.name]
    assert used.calls > 8
    assert unused.calls == 0
    wanted = cases.outcome(
        partial(relative_attention, backend="gather"), {**case, **wide}
    )
    tolerance = 2e-5 if dtype == torch.float32 else 2 * torch.finfo(dtype).eps
    assert {x.dtype for x in found.values()} == {dtype}
    cases.assert_same(found, wanted, tolerance, terms=1.0)
