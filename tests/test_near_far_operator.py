"""The near_far operator: autograd, compilers, exporters, and linear memory."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.testing import CompileCounter
from torch._functorch.aot_autograd import make_boxed_func
from torch.export import Dim
from torch.utils._python_dispatch import TorchDispatchMode

from relpos_lib import RelativePositionEmbedding, relative_attention
from relpos_lib.backends.near_far import far, operator
from relpos_lib.backends.near_far.kernels import Blockwise
from relpos_lib.bench.memory import peak_bytes
from tests import cases
from tests.cases import numbers

MOST_GRAPHS = 3


def fast(**case):
    return relative_attention(**case, backend="near_far")


@pytest.fixture
def _small_tiles(monkeypatch):
    monkeypatch.setattr(operator, "TILE", 2)


# --- derivatives ---------------------------------------------------------------------


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize(
    ("causal", "per_head", "hides"),
    [
        (False, False, False),
        (True, True, False),
        (False, True, True),
        (True, False, True),
    ],
)
def test_first_derivatives(causal, per_head, hides):
    case = cases.inputs(1, 2, 5, 7, 2, 1, bias=1, keys=2, values=1, per_head=per_head)
    leaves = {name: tensor.requires_grad_() for name, tensor in case.items()}
    mask = None
    if hides:
        mask = torch.ones(1, 2, 1, 7, dtype=torch.bool)
        mask[..., 1:5] = False
        mask[0, 1] = False

    def function(*tensors):
        named = dict(zip(leaves, tensors, strict=True))
        return fast(**named, mask=mask, is_causal=causal, scale=-0.7)

    assert torch.autograd.gradcheck(function, tuple(leaves.values()))


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layout", ["expanded", "rows first", "every other"])
def test_the_gradient_of_the_output_may_lie_in_any_way(layout, causal):
    grad = {
        "expanded": numbers(1, 1, 1, seed=8).expand(4, 25, 4),
        "rows first": numbers(25, 4, 4, seed=8).transpose(0, 1),
        "every other": numbers(4, 25, 8, seed=8)[..., ::2],
    }[layout]
    arguments = operands(causal)
    saved = operator.near_far(*arguments)
    rest = (*arguments[:7], *saved, *arguments[7:])
    found = operator.near_far_backward(grad, *rest)
    wanted = operator.near_far_backward(grad.contiguous(), *rest)
    for one, want in zip(found, wanted, strict=True):
        cases.assert_equal(one.detach(), want.detach())


@pytest.mark.parametrize("name", ["query", "value", "value_table"])
def test_second_derivatives_are_refused_with_the_way_out(name):
    case = cases.inputs(1, 2, 6, 7, 4, 4)
    case[name].requires_grad_()
    (grad,) = torch.autograd.grad(
        fast(**case).square().sum(), case[name], create_graph=True
    )
    with pytest.raises(NotImplementedError, match='backend="gather"'):
        grad.sum().backward()
    # The way out that it names is one.
    out = relative_attention(**case, backend="gather").square().sum()
    (grad,) = torch.autograd.grad(out, case[name], create_graph=True)
    grad.sum().backward()
    assert case[name].grad.isfinite().all()


# --- what PyTorch asks of an operator ------------------------------------------------


def operands(causal=False, tables=(True, True, True), hides=True, per_head=True):
    """Arguments of the operator for four heads of a batch of two."""
    rows, heads = (4, 2) if causal else (7, 2)
    bias, key_table, value_table = tables
    hidden = torch.zeros(4, 30, dtype=torch.float64)
    hidden[1, 3:20] = -torch.inf
    hidden[3] = -torch.inf
    front = heads if per_head else 1
    tensors = [
        numbers(4, 25, 4, seed=1),
        numbers(4, 30, 4, seed=2),
        numbers(4, 30, 4, seed=3),
        numbers(heads, rows, seed=4) if bias else None,
        numbers(front, rows, 4, seed=5) if key_table else None,
        numbers(front, rows, 4, seed=6) if value_table else None,
    ]
    tensors = [None if x is None else x.requires_grad_() for x in tensors]
    return [*tensors, hidden if hides else None, 3, causal, 5, 0.5]


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize(
    ("causal", "tables", "hides", "per_head"),
    [
        (False, (True, True, True), True, False),
        (True, (True, True, True), False, True),
        (True, (False, True, False), True, False),
        (False, (False, False, False), False, False),
    ],
)
def test_the_operator_keeps_the_rules_of_operators(causal, tables, hides, per_head):
    arguments = operands(causal, tables, hides, per_head)
    torch.library.opcheck(operator.near_far, arguments)


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("tables", [(True, True, True), (False, False, False)])
def test_its_backward_pass_keeps_the_rules_of_operators(causal, tables):
    arguments = operands(causal, tables)
    arguments = [x.detach() if isinstance(x, torch.Tensor) else x for x in arguments]
    saved = operator.near_far(*arguments)
    grad = numbers(4, 25, 4, seed=9)
    torch.library.opcheck(
        operator.near_far_backward, (grad, *arguments[:7], *saved, *arguments[7:])
    )


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("layout", ["rows first", "width first", "expanded"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_the_compiler_is_told_the_right_strides_and_dtypes(layout, causal, dtype):
    query = {
        "rows first": numbers(30, 2, 4, seed=1).transpose(0, 1),
        "width first": numbers(2, 4, 30, seed=1).mT,
        "expanded": numbers(30, 4, seed=1)[None].expand(2, 30, 4),
    }[layout].to(dtype)
    wide = torch.promote_types(dtype, torch.float32)
    rows = 4 if causal else 7
    tables = (
        numbers(2, rows, seed=2, dtype=wide),
        numbers(1, rows, 4, seed=3, dtype=wide),
        numbers(2, rows, 4, seed=4, dtype=wide),
    )
    hidden = torch.zeros(2, 30, dtype=wide)
    inputs, options = (query, query, query, *tables, hidden), (3, causal, 0, 0.5)
    saved = operator.near_far(*inputs, *options)
    grad = numbers(2, 30, 4, seed=9, dtype=wide)
    backward = (operator.near_far_backward, (grad, *inputs, *saved, *options))
    for function, arguments in ((operator.near_far, (*inputs, *options)), backward):
        torch.library.opcheck(
            function, arguments, test_utils=("test_schema", "test_faketensor")
        )


def test_shapes_are_known_without_numbers():
    case = {name: tensor.to("meta") for name, tensor in cases.inputs().items()}
    case["value_table"].requires_grad_()
    for causal in (False, True):
        mask = torch.ones(2, 1, 1, 11, dtype=torch.bool, device="meta")
        out = fast(**case, mask=mask, is_causal=causal)
        assert out.device.type == "meta"
        assert out.shape == (2, 3, 5, 17)
        (grad,) = torch.autograd.grad(out.sum(), case["value_table"])
        assert grad.shape == case["value_table"].shape


# --- compilers and exporters ---------------------------------------------------------


@pytest.fixture
def _forget_graphs():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


OPTIONS = {
    "plain": lambda n: {},
    "causal": lambda n: {"is_causal": True},
    "padding": lambda n: {"mask": torch.arange(n)[None, None, None] > 2},
    "both": lambda n: {
        "mask": torch.arange(n)[None, None, None] > 2,
        "is_causal": True,
    },
}
LENGTHS = [*range(8, 15), 130, 257, 300]


@pytest.mark.usefixtures("_forget_graphs")
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float32) for name in OPTIONS), ("both", torch.bfloat16)],
)
def test_few_graphs_over_many_lengths_and_no_break(name, dtype):
    counter = CompileCounter()
    compiled = torch.compile(fast, backend=counter, fullgraph=True)
    for n in LENGTHS:
        case = {**cases.inputs(2, 3, n, n, 5, 7, dtype=dtype), **OPTIONS[name](n)}
        assert torch.equal(compiled(**case), fast(**case))
    assert 1 <= counter.frame_count <= MOST_GRAPHS


@pytest.mark.usefixtures("_forget_graphs")
@pytest.mark.parametrize("name", ["plain", "both"])
def test_gradients_through_the_compiler_in_few_graphs(name):
    graphs = []

    def count(module, example):
        graphs.append(module)
        return make_boxed_func(module.forward)

    backend = aot_autograd(fw_compiler=count)
    compiled = torch.compile(fast, backend=backend, fullgraph=True)
    for n in (8, 130, 257):
        case = {**cases.inputs(1, 3, n, n, 5, 7), **OPTIONS[name](n)}
        x = numbers(1, n, 3, 5, seed=n)  # heads as a module cuts them
        case["query"] = case["key"] = x.transpose(1, 2)
        cases.assert_same(
            cases.outcome(compiled, case), cases.outcome(fast, case), 1e-10
        )
    assert 1 <= len(graphs) <= 2 * MOST_GRAPHS  # forward and backward


@pytest.mark.usefixtures("_forget_graphs")
def test_decoding_with_a_growing_cache_is_few_graphs():
    counter = CompileCounter()
    compiled = torch.compile(fast, backend=counter, fullgraph=True)
    for n in range(8, 18):
        case = cases.inputs(2, 3, 1, n, 5, 7, dtype=torch.float32)
        assert torch.equal(compiled(**case), fast(**case))
    assert 1 <= counter.frame_count <= MOST_GRAPHS


class Attention(torch.nn.Module):
    """A sequence of vectors attends to itself."""

    def __init__(self, causal):
        super().__init__()
        self.causal = causal
        self.keys = RelativePositionEmbedding(3, 4)
        self.values = RelativePositionEmbedding(2, 4)

    def forward(self, x, mask):
        return fast(
            query=x,
            key=x,
            value=x,
            key_table=self.keys.table(),
            value_table=self.values.table(),
            mask=mask,
            is_causal=self.causal,
        )


@pytest.mark.parametrize("causal", [False, True])
def test_export_at_lengths_that_were_not_exported(causal):
    module, length = Attention(causal), Dim("length", min=2)

    def example(n, batch=2):
        x = numbers(batch, 2, n, 4, seed=n, dtype=torch.float32)
        return x, (torch.arange(n) % 5 > 0)[None, None, None]

    exported = torch.export.export(
        module,
        example(7),
        dynamic_shapes=({0: Dim("batch", min=2), 2: length}, {3: length}),
    )
    for n in (2, 5, 40, 300):
        torch.testing.assert_close(
            exported.module()(*example(n, 3)), module(*example(n, 3))
        )


# --- memory --------------------------------------------------------------------------


class Largest(TorchDispatchMode):
    """The largest tensor that any operator makes."""

    numbers = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        found = func(*args, **(kwargs or {}))
        for one in torch.utils._pytree.tree_leaves(found):
            if isinstance(one, torch.Tensor):
                self.numbers = max(self.numbers, one.numel())
        return found


def forward_and_backward(arguments):
    """Both operators, so that a mode sees what they do inside."""
    saved = operator.near_far._init_fn(*arguments)
    operator.near_far_backward._init_fn(
        torch.ones_like(arguments[0]), *arguments[:7], *saved, *arguments[7:]
    )


def long_operands(length, causal, hides=True):
    distance = 16
    rows = distance + 1 if causal else 2 * distance + 1
    hidden = torch.zeros(2, length) if hides else None
    return [
        *(numbers(2, length, 8, seed=n, dtype=torch.float32) for n in range(3)),
        numbers(2, rows, seed=4, dtype=torch.float32),
        numbers(2, rows, 8, seed=5, dtype=torch.float32),
        numbers(1, rows, 8, seed=6, dtype=torch.float32),
        hidden,
        distance,
        causal,
        0,
        0.5,
    ]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("length", "kernel"),
    [(1024, "fused"), (2048, "fused"), (4096, "fused"), (2048, "for any device")],
)
def test_nothing_of_the_size_of_all_pairs_is_made(length, kernel, causal, monkeypatch):
    if kernel == "for any device":
        monkeypatch.setattr(far, "kernel_for", lambda *_: Blockwise(1 << 17))
    with Largest() as largest:
        forward_and_backward(long_operands(length, causal))
    # Bands of both heads: 128 queries of a tile see less than 128 + 2 * 16 keys.
    assert length * 8 < largest.numbers <= 2 * length * (128 + 2 * 16)
    assert largest.numbers < 2 * length * length / 4


@pytest.mark.parametrize("causal", [False, True])
def test_the_watch_sees_a_matrix_of_all_pairs(causal):
    with Largest() as largest:
        q = torch.ones(1, 1, 64, 2)
        relative_attention(q, q, q, is_causal=causal)
    assert largest.numbers == 64 * 64


class Overlaps(TorchDispatchMode):
    """Operators that write to views which hold one number of memory twice."""

    def __init__(self):
        super().__init__()
        self.found = []
        self.writes = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func._schema.is_mutable and isinstance(args[0], torch.Tensor):
            self.writes += 1
            places = torch.zeros(args[0].shape, dtype=torch.int64)
            for axis, step in enumerate(args[0].stride()):
                line = torch.arange(args[0].shape[axis]) * step
                places += line.view(-1, *[1] * (args[0].dim() - axis - 1))
            if places.unique().numel() < places.numel():
                self.found.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.usefixtures("_small_tiles")
@pytest.mark.parametrize("causal", [False, True])
def test_nothing_is_written_to_one_place_twice_at_once(causal):
    # Several threads would lose some of it.
    with Overlaps() as overlaps:
        forward_and_backward(long_operands(30, causal))
    assert overlaps.writes > 50
    assert not overlaps.found


@pytest.mark.parametrize("causal", [False, True])
def test_peak_memory_grows_with_the_length_and_not_its_square(causal):
    def peak(length):
        case = cases.inputs(1, 2, length, length, 8, 8, dtype=torch.float32)
        leaves = {name: tensor.requires_grad_() for name, tensor in case.items()}
        return peak_bytes(
            lambda: fast(**leaves, is_causal=causal).sum().backward(), "cpu"
        )

    short, long = peak(1024), peak(4096)
    assert long <= 5 * short
    assert long < 2 * 4096**2 * 4 / 4


@pytest.mark.parametrize("causal", [False, True])
def test_nothing_of_the_size_of_all_pairs_is_kept_for_the_backward_pass(causal):
    length, sizes = 600, []

    def note(tensor):
        sizes.append(tensor.numel())
        return tensor

    case = cases.inputs(1, 2, length, length, 4, 4)
    case["query"].requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        fast(**case, is_causal=causal)
    assert sizes
    assert max(sizes) <= 2 * length * 4
