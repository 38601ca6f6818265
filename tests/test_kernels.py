"""Kernels of plain attention with its log-sum-exp, against the formula."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from relpos_lib.backends.near_far import kernels
from relpos_lib.backends.near_far.kernels import Attended, Blockwise, FusedCPU
from tests import cases
from tests.cases import numbers

KERNELS = {
    "fused": FusedCPU,
    "blockwise": Blockwise,
    "blockwise, few at a time": lambda: Blockwise(300),
    "blockwise, one at a time": lambda: Blockwise(1),
}
each_kernel = pytest.mark.parametrize(
    "kernel", [f() for f in KERNELS.values()], ids=KERNELS
)
N, M, Q, S, D = 2, 3, 7, 11, 5


def tensors(*shapes: tuple[int, ...], dtype=torch.float64) -> list[Tensor]:
    return [numbers(*x, seed=n, dtype=dtype) for n, x in enumerate(shapes)]


def qkv(queries=Q, keys=S, width=D, dtype=torch.float64) -> list[Tensor]:
    return tensors(
        (N, M, queries, width), (N, M, keys, width), (N, M, keys, width), dtype=dtype
    )


def some_hidden(dtype=torch.float64) -> Tensor:
    """Some keys hidden in every group, all of them in two."""
    generator = torch.Generator().manual_seed(0)
    hidden = torch.rand(N, M, 1, S, generator=generator) < 0.5
    hidden[0, 1] = hidden[1, 2] = True
    hidden[0, 0] = False
    return torch.zeros(hidden.shape, dtype=dtype).masked_fill(hidden, -torch.inf)


def dense_forward(query, key, value, hidden, scale) -> Attended:
    scores = scale * (query @ key.mT)
    if hidden is not None:
        scores = scores + hidden
    logsumexp = scores.logsumexp(-1)
    weights = (scores - logsumexp[..., None]).exp().nan_to_num(0.0)
    return Attended(weights @ value, logsumexp)


def dense_backward(grad, query, key, value, whole, hidden, scale) -> list[Tensor]:
    scores = scale * (query @ key.mT)
    if hidden is not None:
        scores = scores + hidden
    weights = (scores - whole.logsumexp[..., None]).exp()
    mean = (grad * whole.out).sum(-1, keepdim=True)
    d_scores = weights * (grad @ value.mT - mean)
    return [scale * d_scores @ key, scale * d_scores.mT @ query, weights.mT @ grad]


def assert_attended(found: Attended, wanted: Attended, tolerance=1e-10) -> None:
    cases.assert_equal(found.out, wanted.out, tolerance)
    empty = wanted.logsumexp == -torch.inf
    assert torch.equal(found.logsumexp == -torch.inf, empty)
    cases.assert_equal(
        found.logsumexp.masked_fill(empty, 0),
        wanted.logsumexp.masked_fill(empty, 0),
        tolerance,
    )
    assert not found.out[empty].any()


@each_kernel
@pytest.mark.parametrize("scale", [0.4, 0.0, -1.3])
@pytest.mark.parametrize("hides", [False, True])
def test_output_and_log_sum_exp(kernel, scale, hides):
    hidden = some_hidden() if hides else None
    case = (*qkv(), hidden, scale)
    assert_attended(kernel.forward(*case), dense_forward(*case))


@each_kernel
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (1, 90), (90, 1), (129, 130)])
def test_any_lengths(kernel, queries, keys):
    case = (*qkv(queries, keys, 3), None, 0.7)
    assert_attended(kernel.forward(*case), dense_forward(*case))


@each_kernel
def test_float32_keeps_its_precision(kernel):
    hidden = some_hidden(torch.float32)
    found = kernel.forward(*qkv(dtype=torch.float32), hidden, 0.4)
    assert found.out.dtype == found.logsumexp.dtype == torch.float32
    wide = [x.float().double() for x in qkv()]
    assert_attended(found, dense_forward(*wide, some_hidden(), 0.4), 1e-6)


@each_kernel
@pytest.mark.parametrize("scale", [0.4, 0.0, -1.3])
@pytest.mark.parametrize("hides", [False, True])
def test_gradients_of_one_group_among_others(kernel, scale, hides):
    """Other groups have raised log-sum-exp and moved the output."""
    hidden = some_hidden() if hides else None
    query, key, value = qkv()
    grad, out, other = tensors((N, M, Q, D), (N, M, Q, D), (N, M, Q))
    own = dense_forward(query, key, value, hidden, scale).logsumexp
    whole = Attended(out, torch.logaddexp(own, other))
    case = (grad, query, key, value, whole, hidden, scale)
    for found, wanted in zip(
        kernel.backward(*case), dense_backward(*case), strict=True
    ):
        cases.assert_equal(found, wanted)


@each_kernel
@pytest.mark.parametrize("hides", [False, True])
def test_a_query_whose_log_sum_exp_is_infinite_gives_no_gradient(kernel, hides):
    hidden = some_hidden() if hides else None
    query, key, value = qkv()
    grad, out, logsumexp = tensors((N, M, Q, D), (N, M, Q, D), (N, M, Q))
    logsumexp[..., 2] = torch.inf
    case = (grad, query, key, value, Attended(out, logsumexp), hidden, 0.4)
    found = kernel.backward(*case)
    assert not found.query[:, :, 2].any()
    for one, wanted in zip(found, dense_backward(*case), strict=True):
        cases.assert_equal(one, wanted)


@each_kernel
def test_overlapping_and_broadcast_views_are_read_as_they_are(kernel):
    line = numbers(2, 20, D, seed=1)

    def windows(rows: int, step: int, first: int = 0) -> Tensor:
        return line.as_strided((N, M, rows, D), (20 * D, step * D, D, 1), first * D)

    hidden = torch.zeros(20, dtype=torch.float64)
    hidden[[3, 4, 5, 6, 9]] = -torch.inf
    hidden = hidden.as_strided((N, M, 1, 6), (0, 5, 0, 1))
    query, key, value = windows(4, 3), windows(6, 5), windows(6, 4, 1)
    case = (query, key, value, hidden, 0.4)
    copies = tuple(x.clone() if isinstance(x, Tensor) else x for x in case)
    found, wanted = kernel.forward(*case), dense_forward(*copies)
    assert_attended(found, wanted)
    grad = windows(4, 2)
    found = kernel.backward(grad, query, key, value, wanted, hidden, 0.4)
    for one, want in zip(
        found, dense_backward(grad, query, key, value, wanted, hidden, 0.4), strict=True
    ):
        cases.assert_equal(one, want)


@each_kernel
@pytest.mark.parametrize("name", ["query", "key", "value"])
def test_nan_is_not_hidden(kernel, name):
    case = dict(zip(("query", "key", "value"), qkv(), strict=True))
    case[name][1, 2, 3, 4] = torch.nan
    out = kernel.forward(**case, hidden=None, scale=0.4).out
    assert out[1, 2, 3].isnan().any()
    assert out[0].isfinite().all()


@pytest.mark.parametrize("shape", [(1, 5), (4, 1), (3, 40)], ids=str)
def test_blockwise_holds_no_more_scores_than_it_is_told(shape, monkeypatch):
    queries, keys = shape
    sizes = []
    real = kernels._scores

    def watched(*args):
        found = real(*args)
        sizes.append(found.numel())
        return found

    monkeypatch.setattr(kernels, "_scores", watched)
    Blockwise(N * M * keys * 2).forward(*qkv(queries, keys), None, 1.0)
    assert max(sizes) <= N * M * keys * 2
    assert len(sizes) == -(-queries // 2)


def test_nothing_visible_means_all_of_a_group_hidden():
    hidden = torch.tensor([[0.0, -torch.inf], [-torch.inf, -torch.inf], [0.0, 0.0]])
    assert kernels.nothing_visible(hidden).tolist() == [False, True, False]


@pytest.fixture
def _no_memory_of_kernels():
    kernels.kernel_for.cache_clear()
    yield
    kernels.kernel_for.cache_clear()


@pytest.mark.usefixtures("_no_memory_of_kernels")
@pytest.mark.parametrize("missing", [(None, None), (None, object()), (object(), None)])
def test_without_the_operators_of_this_release_there_is_still_a_kernel(
    monkeypatch, missing
):
    assert isinstance(kernels.kernel_for("cpu"), FusedCPU)
    kernels.kernel_for.cache_clear()
    monkeypatch.setattr(kernels, "_fused_cpu_operators", lambda: missing)
    assert isinstance(kernels.kernel_for("cpu"), Blockwise)


@pytest.mark.usefixtures("_no_memory_of_kernels")
def test_devices_that_are_not_a_cpu_get_no_kernel_for_cpus():
    assert isinstance(kernels.kernel_for("xpu"), Blockwise)


def test_exponentials_of_any_scores():
    scores = [0.0, -1.0, -60.0, -90.0, -1e4, -torch.inf, torch.nan]
    found = kernels.exp_of_any(torch.tensor(scores))
    exact = torch.tensor(scores[:3]).exp()
    assert torch.equal(found[:3], exact)
    assert torch.equal(found[3:6], torch.zeros(3))
    assert found[6].isnan()
    wide = kernels.exp_of_any(torch.tensor([-90.0, -600.0, -1e4], dtype=torch.float64))
    assert (wide[:2] > 0).all()
    assert wide[2] == 0
