"""The package as a whole: what it imports, in which direction, and how it explains."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import relpos_lib

PACKAGE = Path(relpos_lib.__file__).parent
# Later layers may import earlier ones, and nothing the other way round.
LAYERS = [
    ["_checks"],
    ["offsets", "tables", "heads", "cache", "backends.scratch"],
    ["sinusoidal", "rotary", "bias", "backends.inputs"],
    ["backends.loop", "backends.gather"],
    [
        "backends.checkpoint",
        "backends.flex",
        "backends.near_far.quadtree",
        "backends.near_far.kernels",
        "backends.near_far.band",
    ],
    [
        "backends.near_far.chunks",
        "backends.near_far.cuda_kernels",
        "backends.near_far.problem",
    ],
    ["backends.near_far.far", "backends.near_far.near"],
    ["backends.near_far.operator"],
    ["backends.near_far.attention"],
    ["backends.strided"],
    ["backends.choice"],
    ["attention"],
    ["shaw", "block"],
]
LEVELS = {name: level for level, names in enumerate(LAYERS) for name in names}


def imported_modules(path: Path) -> set[str]:
    """Modules of this package that a file imports, by their names inside it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom) and node.module:
            assert node.level == 0, "relative imports hide the direction"
            found.add(node.module)
            if node.module in ("relpos_lib", "relpos_lib.backends"):
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    prefix = "relpos_lib."
    return {name.removeprefix(prefix) for name in found if name.startswith(prefix)}


@pytest.mark.parametrize("name", LEVELS)
def test_imports_run_one_way(name):
    path = PACKAGE / f"{name.replace('.', '/')}.py"
    for other in imported_modules(path) - {"backends"}:
        assert other in LEVELS, f"{name} imports {other}, which is no core module"
        same = LEVELS[other] == LEVELS[name]
        assert not same, f"{name} and {other} stand side by side"
        assert LEVELS[other] < LEVELS[name], f"{name} imports {other}, which is later"


def test_every_core_module_has_its_layer():
    core = {
        ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for path in [*PACKAGE.glob("*.py"), *PACKAGE.glob("backends/**/*.py")]
        if path.stem not in ("__init__", "__main__")
    }
    outer = {"palette", "records"}
    assert core - outer == set(LEVELS)


def test_importing_needs_torch_and_numpy_only():
    code = (
        "import sys, torch, numpy; before = set(sys.modules); import relpos_lib; "
        "print(*sorted({name.split('.')[0] for name in set(sys.modules) - before}))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=PACKAGE.parent,
    )
    new = set(result.stdout.split()) - set(sys.stdlib_module_names)
    assert new <= {"relpos_lib", "torch", "numpy"}


def test_importing_draws_no_random_number():
    code = (
        "import torch; torch.manual_seed(0); state = torch.get_rng_state(); "
        "import relpos_lib; assert torch.equal(state, torch.get_rng_state())"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=PACKAGE.parent)


def test_all_is_sorted_and_complete():
    names = relpos_lib.__all__
    assert all(hasattr(relpos_lib, name) for name in names)
    public = {
        name
        for name, value in vars(relpos_lib).items()
        if getattr(value, "__module__", "").startswith("relpos_lib.")
        and not name.startswith("_")
    }
    assert set(names) == public


def public_callables():
    """Every public function, class and method, with what it is called."""
    for name in relpos_lib.__all__:
        thing = getattr(relpos_lib, name)
        yield name, thing
        if inspect.isclass(thing):
            for method, value in vars(thing).items():
                if inspect.isfunction(value) and not method.startswith("_"):
                    yield f"{name}.{method}", value


def parameters_of(thing):
    return [name for name in inspect.signature(thing).parameters if name != "self"]


# What these take and give is said by their one sentence and its formula.
SHORT = {"bias_at", "dense", "strength"}


@pytest.mark.parametrize("name", dict(public_callables()))
def test_docstrings_say_what_goes_in_what_comes_out_and_what_is_refused(name):
    thing = dict(public_callables())[name]
    doc = inspect.getdoc(thing)
    assert doc.splitlines()[0].endswith("."), f"{name}: {doc.splitlines()[0]}"
    parameters = parameters_of(thing)
    if not parameters or name.rpartition(".")[2] in SHORT:
        return
    gives = (
        None if inspect.isclass(thing) else inspect.signature(thing).return_annotation
    )
    returns = [] if gives in (None, "None") else ["Returns:"]
    for section in ("Args:", *returns, "Raises:"):
        assert section in doc, f"{name} has no {section}"
    arguments = doc.split("Args:")[1]
    for parameter in parameters:
        assert re.search(rf"\b{parameter}\b.*:", arguments), f"{name}: {parameter}"


def test_signatures_are_those_readers_know():
    assert inspect.getfullargspec(relpos_lib.relative_offsets).args == [
        "q_len",
        "k_len",
    ]
    assert inspect.getfullargspec(relpos_lib.table_rows).args == [
        "q_len",
        "k_len",
        "max_distance",
    ]
    code = inspect.getfullargspec(relpos_lib.sinusoidal_encoding)
    assert code.args == ["length", "d_model"]
    assert code.kwonlydefaults == {
        "start": 0,
        "base": 10_000.0,
        "device": None,
        "dtype": None,
    }
    attention = inspect.getfullargspec(relpos_lib.relative_attention)
    assert attention.args == ["query", "key", "value"]
    assert attention.kwonlydefaults == {
        "bias_table": None,
        "key_table": None,
        "value_table": None,
        "mask": None,
        "is_causal": False,
        "query_start": None,
        "dropout_p": 0.0,
        "scale": None,
        "backend": "auto",
    }
    defaults = {
        relpos_lib.SimpleBiasRPE: {"max_len": 512},
        relpos_lib.GatedBiasRPE: {"max_len": 512, "scale": True},
        relpos_lib.RelativeMultiHeadAttention: {"max_relative_positions": 64},
        relpos_lib.RPETransformerBlock: {"max_len": 512, "dropout": 0.1},
    }
    for thing, wanted in defaults.items():
        found = {
            name: parameter.default
            for name, parameter in inspect.signature(thing).parameters.items()
            if parameter.default is not parameter.empty
            and parameter.kind is not parameter.KEYWORD_ONLY
        }
        assert found == wanted, thing


def test_calls_as_the_tutorials_write_them():
    x = torch.randn(2, 5, 8)
    scores = torch.randn(2, 2, 5, 5)
    attention = relpos_lib.RelativeMultiHeadAttention(8, 2)
    block = relpos_lib.RPETransformerBlock(8, 2)
    assert relpos_lib.relative_offsets(3, 5).shape == (3, 5)
    assert relpos_lib.table_rows(3, 5, 2).shape == (3, 5)
    assert relpos_lib.sinusoidal_encoding(5, 8).shape == (5, 8)
    assert relpos_lib.SinusoidalEncoding(8)(x, start=3).shape == x.shape
    assert relpos_lib.SimpleBiasRPE(2)(scores).shape == scores.shape
    assert relpos_lib.GatedBiasRPE(2)(scores).shape == scores.shape
    assert relpos_lib.RelativePositionEmbedding(4, 8)(5).shape == (5, 5, 8)
    assert attention(x, x, x).shape == x.shape
    output, seen = attention(x, x, x, None, True)
    assert output.shape == x.shape
    assert seen["content_scores"].shape == scores.shape
    assert block(x).shape == x.shape
    assert block(x, None, True).shape == x.shape


def test_modules_keep_nothing_but_parameters():
    for make in (
        lambda: relpos_lib.SimpleBiasRPE(2, 4),
        lambda: relpos_lib.GatedBiasRPE(2, 4),
        lambda: relpos_lib.RelativeMultiHeadAttention(8, 2, 3),
        lambda: relpos_lib.RPETransformerBlock(8, 2, 4),
        lambda: relpos_lib.RelativePositionEmbedding(3, 4),
        lambda: relpos_lib.SinusoidalEncoding(8),
    ):
        module: nn.Module = make()
        parameters = {name for name, _ in module.named_parameters()}
        assert set(module.state_dict()) == parameters


def test_printing_a_module_tells_its_geometry():
    tables = relpos_lib.RelativePositionEmbedding([1, 3], 4, max_future_positions=2)
    assert "past=[1, 3], future=[2, 2]" in repr(tables)
    rpe = relpos_lib.T5BucketBias(2, max_distance=64, bidirectional=False)
    assert "num_heads=2, max_distance=64, num_buckets=32, bidirectional=False" in repr(
        rpe
    )
