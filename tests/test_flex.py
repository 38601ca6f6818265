"""The backend on FlexAttention: what it serves, what it refuses, and its gradients.

On a CPU FlexAttention runs its own dense form, forward only. That form has gradients
too, behind a check; with the check out of the way, training is tested as a GPU would
do it, padding and blocks included, all but the compiled kernel.
"""

from __future__ import annotations

import subprocess
import sys
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from torch.nn.attention import flex_attention as pytorch

from relpos_lib import relative_attention
from relpos_lib.attention import checked_inputs
from relpos_lib.backends import flex
from tests import cases
from tests.cases import B, H, Q, S, any_case, numbers

pytestmark = pytest.mark.filterwarnings("ignore:flex_attention called without")

run = partial(relative_attention, backend="flex")


def served(case):
    """The case without what FlexAttention cannot express."""
    return {name: x for name, x in case.items() if name != "value_table"}


def mask_of(*shape, seed=5):
    return numbers(*shape, seed=seed) > 0


OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "queries alone": {"mask": mask_of(Q, S)},
    "padding": {"mask": mask_of(B, 1, 1, S)},
    "one a head": {"mask": mask_of(1, H, Q, 1)},
    "everything": {"mask": mask_of(B, H, Q, S), "is_causal": True},
    "nobody": {"mask": torch.zeros(1, 1, 1, 1, dtype=torch.bool)},
    "some see nothing": {"mask": mask_of(B, 1, 1, S), "query_start": -3}
    | {"is_causal": True},
    "moved": {"query_start": 3, "scale": -0.7},
    "far away": {"query_start": 100, "is_causal": True},
}
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


@each_option
@pytest.mark.parametrize(
    ("present", "per_head"),
    [("", False), ("bias", False), ("keys", False), ("bias keys", True)],
)
def test_the_output_is_that_of_the_definition(options, present, per_head):
    case = cases.inputs(
        bias=3 if "bias" in present else None,
        keys=9 if "keys" in present else None,
        values=None,
        per_head=per_head,
    )
    case |= options
    found = run(**case)
    assert found.isfinite().all()
    cases.assert_equal(found, cases.truth(case)["output"])


@settings(max_examples=25)
@given(case=any_case())
def test_the_output_of_any_case(case):
    case = served(case)
    cases.assert_equal(run(**case), cases.truth(case)["output"])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_summed_in_float32(dtype):
    case = cases.inputs(values=None, dtype=dtype)
    found, wanted = run(**case), cases.truth(case)["output"]
    assert found.dtype == dtype
    error = (found.double() - wanted).abs().max().item()
    assert error <= cases.one_ulp(wanted, dtype)


@each_option
@pytest.mark.parametrize(
    "lengths", [(5, 11), (1, 300), (129, 256), (260, 131)], ids=str
)
@pytest.mark.parametrize("multiple", [1, 128])
def test_blocks_say_what_the_mask_says(options, lengths, multiple):
    options = dict(options)
    if "mask" in options:  # of the same kind, for these lengths
        mask = options["mask"]
        shape = (1,) * (4 - mask.dim()) + tuple(mask.shape)
        sizes = (B, H, *lengths)
        options["mask"] = mask_of(
            *(size if one > 1 else 1 for one, size in zip(shape, sizes, strict=True))
        )
        options["mask"][..., : lengths[1] // 2] |= True  # whole blocks
    case = cases.inputs(B, H, *lengths, 2, 2, bias=None, keys=None, values=None)
    inputs = checked_inputs(**{**case, **options})
    q_len, k_len = (-(-x // multiple) * multiple for x in lengths)
    found = flex.block_mask(inputs, q_len, k_len)
    if found is None:
        assert options.keys() <= {"query_start", "scale"}
        assert k_len == lengths[1]
        return
    seen = pytorch.create_mask(found.mask_mod, B, H, q_len, k_len, device="cpu")
    positions = torch.arange(lengths[0])[:, None] + inputs.query_start
    wanted = torch.ones(B, H, *lengths, dtype=torch.bool)
    if inputs.is_causal:
        wanted &= torch.arange(lengths[1]) <= positions
    if inputs.mask is not None:
        wanted &= inputs.mask
    assert torch.equal(seen[:, :, : lengths[0], : lengths[1]], wanted)
    assert not seen[..., lengths[1] :].any()
    # A block that is left out has nothing to see, one that is full has nothing hidden.
    assert found.shape[-2:] == (q_len, k_len)
    dense = found.to_dense().expand(B, H, -1, -1).bool()
    full = listed(found.full_kv_num_blocks, found.full_kv_indices).expand_as(dense)
    partial_blocks = listed(found.kv_num_blocks, found.kv_indices).expand_as(dense)
    assert not (full & partial_blocks).any()
    assert torch.equal(dense, full | partial_blocks)
    assert not (seen & ~of_pairs(dense, seen)).any()
    assert (seen | ~of_pairs(full, seen))[:, :, : lengths[0]].all()  # no padding
    if not (inputs.is_causal and inputs.mask is not None):  # nothing more is left out
        assert torch.equal(dense, any_of_blocks(seen, dense))


def listed(count, order):
    """The blocks that a number and an order list."""
    found = torch.zeros_like(order, dtype=torch.bool)
    first = torch.arange(order.shape[-1]) < count[..., None]
    return found.scatter(-1, order.long(), first)


def of_pairs(blocks, like):
    """What holds for blocks, pair by pair."""
    wide = blocks.repeat_interleave(128, 2).repeat_interleave(128, 3)
    return wide[:, :, : like.shape[2], : like.shape[3]]


def any_of_blocks(seen, like):
    found = torch.zeros_like(like)
    for i in range(like.shape[2]):
        for j in range(like.shape[3]):
            block = seen[:, :, 128 * i : 128 * i + 128, 128 * j : 128 * j + 128]
            found[:, :, i, j] = block.flatten(2).any(-1)
    return found


# --- as on a GPU, but for the kernel ------------------------------------------------


@pytest.fixture
def as_if_on_cuda(monkeypatch):
    monkeypatch.setattr(pytorch, "_validate_device", lambda *tensors: None)
    monkeypatch.setattr(flex, "compiles_for", lambda device: True)
    monkeypatch.setattr(flex, "_compiled", lambda: pytorch.flex_attention)
    original = flex.check_served

    def check(inputs):
        return original(inputs._replace(query=inputs.query.float()))

    monkeypatch.setattr(flex, "check_served", check)


@each_option
@pytest.mark.parametrize("per_head", [False, True])
@pytest.mark.usefixtures("as_if_on_cuda")
def test_outputs_and_gradients_in_blocks(options, per_head):
    case = cases.inputs(values=None, per_head=per_head) | options
    cases.assert_same(cases.outcome(run, case), cases.truth(case), 1e-10)


@pytest.mark.usefixtures("as_if_on_cuda")
def test_gradients_beyond_one_block():
    case = cases.inputs(1, 2, 150, 270, 3, 5, bias=4, keys=6, values=None)
    case |= {"is_causal": True, "mask": mask_of(1, 1, 1, 270)}
    wanted = cases.outcome(partial(relative_attention, backend="gather"), case)
    cases.assert_same(cases.outcome(run, case), wanted, 1e-10)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.usefixtures("as_if_on_cuda")
def test_half_precision_reaches_the_kernel(dtype, monkeypatch):
    case = cases.inputs(values=None, dtype=dtype)
    found, wanted = cases.outcome(run, case), cases.truth(case)
    assert {x.dtype for x in found.values()} == {dtype}
    cases.assert_same(found, wanted, 2 * torch.finfo(dtype).eps, terms=1.0)
    dtypes = []

    def seen(query, key, value, **options):
        dtypes.extend(x.dtype for x in (query, key, value))
        assert query.shape[3] >= flex.LEAST_WIDTH <= value.shape[3]
        return pytorch.flex_attention(query, key, value, **options)

    monkeypatch.setattr(flex, "_compiled", lambda: seen)
    run(**case)
    assert dtypes == [dtype] * 3


@pytest.mark.usefixtures("as_if_on_cuda")
def test_a_bias_that_hides_keys_keeps_gradients_finite():
    case = cases.inputs(values=None)
    case["bias_table"][:, :3] = -torch.inf
    case["bias_table"][1] = -torch.inf
    gather = partial(relative_attention, backend="gather")
    cases.assert_same(cases.outcome(run, case), cases.outcome(gather, case), 1e-10)


# --- what is refused ----------------------------------------------------------------


def test_a_value_table_is_refused():
    with pytest.raises(ValueError, match=r"value_table must be None.*near_far"):
        run(**cases.inputs())


def test_dropout_is_refused():
    with pytest.raises(ValueError, match=r"dropout_p must be 0.*near_far"):
        run(**cases.inputs(values=None), dropout_p=0.5)


@pytest.mark.parametrize("name", ["query", "value", "bias_table", "key_table"])
def test_training_on_a_cpu_is_refused_before_any_work(name, monkeypatch):
    monkeypatch.setattr(flex, "_function", None)
    monkeypatch.setattr(flex.gather, "prepared", None)
    case = cases.inputs(values=None)
    case[name].requires_grad_()
    with pytest.raises(ValueError, match=r"require gradients on a CPU.*near_far"):
        run(**case)


def test_what_could_be_trained_is_evaluated_without_gradients():
    case = cases.inputs(values=None)
    wanted = run(**case)
    for x in case.values():
        x.requires_grad_()
    with torch.no_grad():
        assert torch.equal(run(**case), wanted)


def test_other_devices_are_refused():
    case = {n: x.to("meta") for n, x in cases.inputs(values=None).items()}
    with pytest.raises(ValueError, match=r"query must be on a CPU or a CUDA .* meta"):
        run(**case)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_a_compiled_kernel_takes_no_float64(dtype):
    inputs = checked_inputs(**cases.inputs(values=None, dtype=dtype))

    class OnCUDA:
        device, dtype = torch.device("cuda"), inputs.query.dtype

    on_cuda = inputs._replace(query=OnCUDA())
    if dtype == torch.float32:
        flex.check_served(on_cuda)
    else:
        with pytest.raises(ValueError, match="query must be float32 or half"):
            flex.check_served(on_cuda)


def test_flexattention_is_imported_when_it_is_asked_for():
    code = (
        "import sys, torch; before = set(sys.modules); import relpos_lib; "
        "assert 'torch.nn.attention.flex_attention' not in set(sys.modules) - before"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_is_part_of_a_compiled_function():
    case = cases.inputs(values=None, dtype=torch.float32)
    compiled = torch.compile(run, backend="eager")
    for length in (S, 2 * S):
        case = cases.inputs(k_len=length, values=None, dtype=torch.float32)
        case["is_causal"] = True
        torch.testing.assert_close(compiled(**case), run(**case))
