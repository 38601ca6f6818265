"""Who takes part: our backends, and what they are compared with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from torch import Tensor

from relpos_lib.attention import BACKENDS, relative_attention
from relpos_lib.bench import peers
from relpos_lib.bench.cases import Case, Problem, Setting

PLAIN, AUTO = "plain", "auto"
Memory = Callable[[Case, Setting], float]


class Pass(NamedTuple):
    """A call that is ready to be timed, and the tensors that want its gradient."""

    run: Callable[[], Tensor]
    leaves: list[Tensor]


class Contender(NamedTuple):
    """One way to compute attention.

    Attributes:
        name: without spaces, as in the file of results.
        prepare: makes what is timed; this or the first call may refuse a problem by a
            ``ValueError`` or a ``NotImplementedError``.
        memory: how many numbers it is expected to hold at the worst moment.
        slowness: how many times slower than plain attention it is guessed to be.
        workloads: those it is for; None for all of them.
        compiled: whether its first call compiles.
        ours: whether it is one of the library's backends.
    """

    name: str
    prepare: Callable[[Problem], Pass]
    memory: Memory
    slowness: float = 10.0
    workloads: Sequence[str] | None = None
    compiled: bool = False
    ours: bool = False

    def is_for(self, workload: str) -> bool:
        """Whether it is for a workload, as far as is known without asking it."""
        return self.workloads is None or workload in self.workloads


def linear(case: Case, setting: Setting) -> float:
    """A few tensors of a row a query: (B, H, L, 3 (2K+1) + 6 D)."""
    rows = 2 * min(case.max_distance or 128, case.length) + 1
    queries = setting.batch * setting.heads * case.length
    return queries * (3 * rows + 6 * setting.width)


def by_pair(times: float, backward_times: float) -> Memory:
    """Some (B, H, L, L) tensors, more of them with a backward pass."""

    def numbers(case: Case, setting: Setting) -> float:
        pairs = setting.batch * setting.heads * case.length**2
        return pairs * (backward_times if case.backward else times)

    return numbers


def by_pair_and_width(case: Case, setting: Setting) -> float:
    """(L, L, D) tensors: one a side, three with a backward pass, beside the scores."""
    sides = 2 if case.workload == "shaw" else 1
    vectors = sides * case.length**2 * setting.width
    return by_pair(4, 4.5)(case, setting) + vectors * (1.5 if case.backward else 1)


# Anything not named here may hold a number for every pair.
OWN_MEMORY: dict[str, Memory] = {
    "near_far": linear,
    "strided": linear,
    "flex": linear,
    "auto": linear if "near_far" in BACKENDS else by_pair(4, 4.5),
}
OWN_SLOWNESS = {"near_far": 2.0, "strided": 2.0, "auto": 2.0, "flex": 2.0, "loop": 1e5}
BIASES = ("bias", "unclipped", "alibi", "t5")

plain = Contender(
    PLAIN,
    lambda problem: Pass(
        lambda: peers.plain(problem), [t for t in problem.inputs if t.requires_grad]
    ),
    linear,
    slowness=1.0,
)


def own(name: str) -> Contender:
    """A backend of the library; one that it refuses a workload says so itself."""

    def prepare(problem: Problem) -> Pass:
        def run() -> Tensor:
            return relative_attention(
                *problem.inputs,
                **problem.tables,  # type: ignore[arg-type]
                is_causal=problem.causal,
                backend=name,
            )

        return Pass(run, problem.leaves)

    return Contender(
        name,
        prepare,
        OWN_MEMORY.get(name, by_pair(4, 4.5)),
        OWN_SLOWNESS.get(name, 10.0),
        compiled=name == "flex",
        ours=True,
    )


def of_function(attend: Callable[[Problem], Tensor]) -> Callable[[Problem], Pass]:
    """What :attr:`Contender.prepare` needs, for a function of a problem."""
    return lambda problem: Pass(lambda: attend(problem), problem.leaves)


def contenders() -> dict[str, Contender]:
    """Everyone who can take part here, by name; plain attention first.

    The loop is left out unless asked for by name: it is the definition, for lengths up
    to about 50.
    """
    from relpos_lib.bench.installed import installed_peers

    everyone = [
        plain,
        *(own(name) for name in (AUTO, *BACKENDS)),
        Contender(
            "usual-shaw",
            of_function(peers.usual_shaw),
            by_pair_and_width,
            slowness=30.0,
            workloads=("shaw-keys", "shaw-values", "shaw"),
        ),
        Contender(
            "bias-as-mask",
            of_function(peers.bias_as_mask),
            by_pair(1.5, 4),
            slowness=6.0,
            workloads=BIASES,
        ),
        Contender(
            "flex-captured",
            lambda problem: Pass(peers.flex_captured(problem), problem.leaves),
            by_pair(0.2, 0.2),
            slowness=5.0,
            workloads=(*BIASES, "shaw-keys"),
            compiled=True,
        ),
        *installed_peers(),
    ]
    return {contender.name: contender for contender in everyone}
