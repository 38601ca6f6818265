"""What attention costs inside a model, and what an index table costs.

A claim about training is about a model, of which attention is only a part. So every
contender also takes part within layers of a transformer: projections, residual
branches and a feed-forward network around the same attention. The tables are shared by
the layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor, nn

from relpos_lib.bench.cases import Case, Problem, Setting, problem_of
from relpos_lib.bench.contenders import AUTO, PLAIN, Contender, Pass
from relpos_lib.bench.measure import Rules, Tell, measure, once, rounded, waiter
from relpos_lib.bench.plan import MAX_DISTANCE
from relpos_lib.bench.predict import History
from relpos_lib.bench.timing import interleaved, ratios, spread
from relpos_lib.offsets import table_rows

TOKENS = 1024  # of a training step, whatever the length
# Who is within layers, by workload; "checkpoint" only where there are several.
INSIDE = {
    "shaw": (PLAIN, AUTO, "near_far", "gather", "checkpoint", "usual-shaw"),
    "unclipped": (PLAIN, AUTO, "strided", "gather", "bias-as-mask"),
}
# Who is compared with whom there.
PAIRS = (
    ("gather", "usual-shaw"),
    ("near_far", "usual-shaw"),
    (AUTO, "usual-shaw"),
    ("checkpoint", "gather"),
    ("near_far", "gather"),
    (AUTO, "bias-as-mask"),
)


class Stack(NamedTuple):
    """Some layers at a length.

    Attributes:
        workload: a name in :data:`relpos_lib.bench.cases.WORKLOADS`.
        length: L.
        depth: number of layers.
    """

    workload: str
    length: int
    depth: int = 1

    @property
    def key(self) -> str:
        """Its name in the file of results.

        >>> Stack("shaw", 512, 4).key
        'shaw-512-x4'
        """
        return f"{self.workload}-{self.length}-x{self.depth}"

    @property
    def case(self) -> Case:
        """What attention computes in each layer; training needs both passes."""
        distance = None if self.workload == "unclipped" else MAX_DISTANCE
        return Case(self.workload, self.length, distance, backward=True)

    @property
    def batch(self) -> int:
        """As many sequences as make up the tokens of a step."""
        return max(1, TOKENS // self.length)


STACKS = (
    *(Stack("shaw", length) for length in (128, 256, 512, 1024)),
    Stack("unclipped", 512),
    Stack("shaw", 512, 4),
)
INDEX_LENGTHS = (512, 2048)


class Layer(nn.Module):
    """A layer of a transformer that is handed its attention.

    Args:
        heads: H.
        width: D.
    """

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        model = heads * width
        self.size = (heads, width)
        self.norms = nn.ModuleList(nn.LayerNorm(model) for _ in range(2))
        self.project = nn.Linear(model, 3 * model)
        self.join = nn.Linear(model, model)
        self.widen, self.narrow = (
            nn.Linear(model, 4 * model),
            nn.Linear(4 * model, model),
        )

    def forward(
        self, x: Tensor, attend: Callable[[Tensor, Tensor, Tensor], Tensor]
    ) -> Tensor:
        """(B, L, E) to (B, L, E)."""
        projected = self.project(self.norms[0](x)).view(*x.shape[:2], 3, *self.size)
        out = attend(*projected.permute(2, 0, 3, 1, 4).unbind())  # (B, H, L, D)
        x = x + self.join(out.transpose(1, 2).flatten(2))
        x = x + self.narrow(F.gelu(self.widen(self.norms[1](x))))
        return x


def in_layers(contender: Contender, depth: int) -> Contender:
    """The contender as the attention of some layers."""

    def prepare(problem: Problem) -> Pass:
        heads, width = problem.query.shape[1], problem.query.shape[3]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            layers = nn.ModuleList(Layer(heads, width) for _ in range(depth))
        layers.to(problem.query)
        x = problem.query.detach().transpose(1, 2).flatten(2).requires_grad_()
        given = {id(t) for t in problem.inputs}
        own = contender.prepare(problem).leaves
        tables = [t for t in own if id(t) not in given]

        def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
            asked = problem._replace(query=query, key=key, value=value)
            return contender.prepare(asked).run()

        def run() -> Tensor:
            y = x
            for layer in layers:
                y = layer(y, attend)
            return y.view(*y.shape[:2], heads, width).transpose(1, 2)

        return Pass(run, [x, *layers.parameters(), *tables])

    def memory(case: Case, setting: Setting) -> float:
        tokens = setting.batch * case.length
        beside = 20 * tokens * setting.heads * setting.width
        return depth * (contender.memory(case, setting) + beside)

    return contender._replace(
        prepare=prepare, memory=memory, slowness=depth * (contender.slowness + 10)
    )


def measure_stack(
    stack: Stack,
    setting: Setting,
    contenders: Mapping[str, Contender],
    rules: Rules,
    tell: Tell = lambda _: None,
) -> dict[str, Any]:
    """What a training step of some layers needs, with every contender within.

    Returns:
        A record as of :func:`relpos_lib.bench.measure.measure`, and under "compared"
        time and memory of one contender over those of another.
    """
    inside = {
        name: in_layers(contenders[name], stack.depth)
        for name in INSIDE[stack.workload]
        if name in contenders and (stack.depth > 1 or name != "checkpoint")
    }
    setting = setting._replace(batch=stack.batch)
    record = measure(stack.case, setting, inside, History(), rules, tell=tell)
    record |= {"depth": stack.depth, "batch": stack.batch}
    record["compared"] = compared(record["cells"])
    return record


def compared(cells: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Time and memory of one over those of another, for all :data:`PAIRS`.

    Times are compared round by round.
    """
    return {
        f"{one}-to-{other}": {
            "time": _over(cells[one]["ratios"], cells[other]["ratios"]),
            "memory": rounded(
                cells[one]["peak_bytes"] / max(1, cells[other]["peak_bytes"])
            ),
        }
        for one, other in PAIRS
        if one in cells and other in cells
    }


def measure_index(
    length: int, setting: Setting, contenders: Mapping[str, Contender], rules: Rules
) -> dict[str, float]:
    """What making the index table costs the gather backend, which does it twice.

    Returns:
        "share", the time to make two index tables over that of one forward pass, and
        "megabytes" of one table.
    """
    case = Case("shaw", length, MAX_DISTANCE)
    problem = problem_of(case, setting)
    prepared = contenders["gather"].prepare(problem)

    def two_tables() -> list[Tensor]:
        return [
            table_rows(length, length, MAX_DISTANCE, device=setting.device)
            for _ in range(2)
        ]

    runs: dict[str, Callable[[], object]] = {
        "gather": lambda: once(prepared, problem, False),
        "tables": two_tables,
    }
    for run in runs.values():
        run()  # warms up
    found = interleaved(
        runs,
        "gather",
        rules.rounds,
        enough=rules.enough,
        budget=rules.patience,
        clock=rules.clock,
        wait=waiter(setting.device),
    )
    share = spread(ratios(found, "gather")["tables"]).median
    return {"share": rounded(share), "megabytes": rounded(8 * length**2 / 1e6)}


def _over(one: list[float], other: list[float]) -> float:
    """Median of the ratio of the same rounds."""
    by_round = [a / b for a, b in zip(one, other, strict=False)]
    return rounded(spread(by_round).median)
