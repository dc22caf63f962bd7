"""Workloads to search in, and made-up times for their candidates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compiler.core.diagnostics import UsageError
from compiler.core.types import F32
from compiler.loops.ir import Buffer, Func, Store, const
from compiler.schedule.chooser import Chooser, Option, RecordingChooser
from compiler.schedule.trace import Trace
from compiler.stages.tuned import Decisions
from compiler.stages.workload import Workload
from compiler.targets import Target, get_target
from compiler.tune.candidate import KernelCandidate, RejectedError
from compiler.tune.record import OK, Measured
from compiler.tune.strategies.space import Space
from compiler.tune.strategies.strategy import Strategy
from compiler.tune.strategies.tree import value_distance
from tests.support.works import works_of


def narrow() -> Target:
    """Four lanes."""
    return get_target("cpu:x86-64")


def workload(*names: str) -> Workload:
    """The last work of each of the samples as one of a workload's forms."""
    works = [(name, works_of(name, 4)[-1]) for name in names]
    forms = tuple((name, (func, tuple(layouts.items()))) for name, (func, layouts) in works)
    return Workload(forms, "form" if len(forms) > 1 else "")


# ---------------------------------------------------------------- a space that costs nothing

_Y = Buffer("y", F32, (const(1),))


def never(_: Decisions) -> bool:
    """Refuses nothing."""
    return False


def toy_space(largest: int = 8, refuses: Callable[[Decisions], bool] = never) -> Space:
    """Two forms: the first one has tiles of two numbers and orders, the second one a plan.

    Tiles with an even first number make the same kernel whatever their order.
    """

    def make(workload: Workload, _: Target, chooser: Chooser) -> KernelCandidate:
        asked = RecordingChooser(chooser)
        if asked.choose("form", [Option((0,), 2.0), Option((1,), 3.0)]) == (0,):
            name = _tiled(asked, largest)
        else:
            name = f"plan_{asked.choose('plan', [Option((n,), 1.0 + abs(n - 3)) for n in range(largest)])[0]}"
        if refuses(asked.decisions):
            raise RejectedError(asked.decisions, UsageError(f"no room for {asked.decisions}"))
        func = Func(name, (_Y,), Store(_Y, (const(0),), const(0.0, F32)))
        return KernelCandidate(workload, asked.decisions, asked.offered, Trace(()), func, func, name)

    return Space(Workload.of(Func("f", (_Y,), Store(_Y, (const(0),), const(0.0, F32))), {}), narrow(), make)


def _tiled(asked: RecordingChooser, largest: int) -> str:
    tiles = [(a, b) for a in range(1, largest + 1) for b in range(1, largest + 1) if a * b <= 2 * largest]
    tile = asked.choose("dense.tile", [Option(item, 1.0 + value_distance(item, (3, 3))) for item in tiles])
    (order,) = asked.choose("dense.order", [Option((n,), 1.0 + n) for n in range(3)])
    return f"tile_{tile[0]}_{tile[1]}_{order if tile[0] % 2 else 0}"


def toy_programs(largest: int = 8, refuses: Callable[[Decisions], bool] = never) -> set[str]:
    """The digests of all its kernels, by asking for every tile, order and plan."""
    made = set()
    of = toy_space(largest)
    for tile in ((a, b) for a in range(1, largest + 1) for b in range(1, largest + 1)):
        for rest in ({"dense.order": (n,)} for n in range(3)):
            made.add(_program(of, {"form": (0,), "dense.tile": tile, **rest}, refuses))
    for plan in range(largest):
        made.add(_program(of, {"form": (1,), "plan": (plan,)}, refuses))
    return made - {""}


def _program(of: Space, decisions: Decisions, refuses: Callable[[Decisions], bool]) -> str:
    made = of.revisit(decisions)
    return made.program if made is not None and made.decisions == decisions and not refuses(decisions) else ""


BEST = {"dense.tile": (5, 2), "dense.order": (1,), "form": (0,)}


def seconds_of(candidate: KernelCandidate) -> float:
    """A landscape without noise: the farther from some decisions, the slower."""
    decisions = candidate.decisions.items()
    far = sum(value_distance(value, BEST.get(name, value)) for name, value in decisions)
    return 1e-3 * (1.0 + far + 2.0 * candidate.decisions.get("form", (0,))[0])


def searched(strategy: Strategy, batch: int, most: int = 1000) -> list[KernelCandidate]:
    """What a strategy proposes when it hears the times of the landscape."""
    found: list[KernelCandidate] = []
    while len(found) < most and (proposed := strategy.propose(min(batch, most - len(found)))):
        hear(strategy, proposed)
        found += proposed
    return found


def hear(strategy: Strategy, candidates: Sequence[KernelCandidate]) -> None:
    """Tell a strategy their times."""
    for candidate in candidates:
        strategy.learn(candidate, Measured(OK, (seconds_of(candidate),)))
