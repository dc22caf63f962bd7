"""What the search is worth, on times that are measured once: strategies replayed with several seeds.

    python benchmarks/tuning_replay.py [--only conv] [--seeds 5]   times what it has no times of, and replays
    python benchmarks/tuning_replay.py --replay                    replays only, and needs no quiet machine

Each kernel that any of them proposes is built and timed when it is first proposed, and its time is kept in
build/benchmarks/tuning-replay after every dozen, so it goes on where it was stopped; a replay with the same
times takes no measurements. Random search is read off 256 candidates at random: each seed takes 200
of them in an order of its own. Printed for each case: the trials until a strategy has what random search has
after 200 (medians over the seeds), how well the cost model ranks what it has not seen after 128 measurements
(Kendall's tau), and whether a seed gives the same again.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from support import WORK, machine, markdown_table, model_path, save
from timed_kernels import TimedKernels

from compiler.core.files import write_atomic
from compiler.loops.queries import static_shape
from compiler.pipeline import run_job
from compiler.reports import CompileOptions
from compiler.schedule.chooser import Chooser, RecordingChooser, ReplayChooser
from compiler.schedule.known_steps import KnownSteps
from compiler.stages.job import CompileJob
from compiler.stages.tuned import Tuned
from compiler.stages.workload import Workload
from compiler.targets import Target, get_target
from compiler.tune.candidate import KernelCandidate, make_candidate
from compiler.tune.record import OK, Measured
from compiler.tune.strategies.evolution import Evolution
from compiler.tune.strategies.model import CostModel
from compiler.tune.strategies.space import Space
from compiler.tune.strategies.strategy import RandomSearch, Strategy
from compiler.tune.strategies.tree import DecisionTree, Walk

CASES = {
    "conv": ("resnet50", [(1, 256, 16, 16), (256, 256, 3, 3)]),
    "product": ("bert-base", [(128, 768), (768, 3072)]),
    "depthwise": ("mobilenetv2", [(1, 384, 16, 16), (384, 1, 3, 3)]),
}
"""A network, and what the kernel reads: a 3 x 3 convolution, a product, the depthwise convolution that is
farthest from its bound."""

PLACE = WORK / "tuning-replay"
POOL, TRIALS, GUIDED, BATCH, LEARNED_FROM = 256, 200, 72, 12, 128


# ---------------------------------------------------------------- what is searched


def workload_of(name: str) -> Workload:
    """The workload of a case, from its network; kept in a file."""
    file = PLACE / f"{name}.workload.json"
    if not file.exists():
        network, shapes = CASES[name]
        found = [item for item in workloads(network) if reads(item)[: len(shapes)] == shapes]
        write_atomic(file, found[0].to_json())
    return Workload.from_json(file.read_text(encoding="utf-8"))


def reads(workload: Workload) -> list[tuple[int, ...]]:
    """The shapes of its parameters."""
    return [static_shape(item) for item in workload.forms[0][1][0].params]


def workloads(network: str) -> list[Workload]:
    """All workloads of a network."""
    found: dict[str, Workload] = {}

    def note(workload: Workload) -> Tuned:
        found[workload.key] = workload
        return Tuned()

    options = CompileOptions(target="cpu", output=PLACE / "none.so", stop_after="loops")
    path = model_path(network, WORK / "models")
    run_job(replace(CompileJob.of(path, options), records=note))
    return list(found.values())


class Remembered:
    """Makes each candidate once, for all the searches."""

    def __init__(self) -> None:
        self._tree, self._known = DecisionTree(), KnownSteps()
        self._made: dict[frozenset[tuple[str, tuple[int, ...]]], KernelCandidate] = {}

    def __call__(self, workload: Workload, target: Target, chooser: Chooser) -> KernelCandidate:
        asked = RecordingChooser(chooser)
        walk = self._tree.walk(asked)
        key = frozenset(walk.decisions.items())
        if key not in self._made:
            made = make_candidate(workload, target, ReplayChooser(walk.decisions, chooser), self._known)
            self._tree.add(made.decisions, made.offered)
            key = frozenset(made.decisions.items())
            self._made[key] = made
        return self._made[key]


# ---------------------------------------------------------------- searches


def evolution(space: Space, seed: int) -> Strategy:
    """Evolution with a model that has learned nothing yet."""
    return Evolution(space, seed, ranking=CostModel().ranking(space.workload.key, space.target.facts))


def searched(
    strategy: Strategy, times: TimedKernels, most: int = TRIALS
) -> tuple[list[KernelCandidate], list[float]]:
    """What was proposed, and the seconds of each."""
    found: list[KernelCandidate] = []
    seconds: list[float] = []
    while len(found) < most and (batch := strategy.propose(min(BATCH, most - len(found)))):
        times.build(batch)
        for candidate in batch:
            seconds.append(times.of(candidate))
            strategy.learn(candidate, Measured(OK, (seconds[-1],)))
        found += batch
        times.save()
    return found, seconds


def trials_to(seconds: Sequence[float], goal: float) -> float:
    """How many trials it took to come to a time; infinite where it never did."""
    return next((n for n, item in enumerate(seconds, 1) if item <= goal), math.inf)


_SAME = 1.01
"""Times that differ by less are the same."""


def compared(
    name: str, seeds: int, times: TimedKernels, space: Callable[[], Space], pool: list[float]
) -> tuple[list[list[str]], dict[str, object]]:
    """Rows of the table for a case, and its data; `pool` has the seconds of candidates at random."""
    curves: dict[str, list[list[float]]] = {"random": [], "evolution": []}
    for seed in range(seeds):
        curves["random"].append(random.Random(seed).sample(pool, min(TRIALS, len(pool))))  # noqa: S311 - a sample
        curves["evolution"].append(searched(evolution(space(), seed), times, GUIDED)[1])
    best = min(times.seconds.values())
    goal = statistics.median(min(curve) for curve in curves["random"])
    default = curves["evolution"][0][0]
    rows = []
    for kind, found in curves.items():
        to_goal = sorted(trials_to(curve, goal * _SAME) for curve in found)
        at = [statistics.median(min(curve[:n]) for curve in found) / best for n in (16, 32, 64, TRIALS)]
        rows.append(
            [
                *(name, kind, f"{default / best:.2f}", f"{goal / best:.3f}"),
                *(f"{statistics.median(to_goal):.0f}", f"{to_goal[0]:.0f} to {to_goal[-1]:.0f}"),
                *(f"{item:.3f}" for item in at),
            ]
        )
    return rows, {"curves": curves, "best": best, "goal": goal, "default": default}


def correlation(times: TimedKernels, space: Space, pool: list[KernelCandidate], seed: int) -> list[float]:
    """Kendall's tau of the trees on decisions and of those on loops, on what they have not seen; how many."""
    order = random.Random(seed).sample(pool, len(pool))  # noqa: S311 - an order
    ranking = CostModel().ranking(space.workload.key, space.target.facts)
    for item in order[:LEARNED_FROM]:
        ranking.learn(item, Measured(OK, (times.of(item),)))
    rest = order[LEARNED_FROM:]
    seconds = [times.of(item) for item in rest]
    by_decisions = ranking.of_decisions([Walk.of(item) for item in rest])
    return [tau(by_decisions, seconds), tau(ranking.of_candidates(rest), seconds), len(rest)]


def tau(scores: Sequence[float], seconds: Sequence[float]) -> float:
    """Kendall's rank correlation (b) of scores, of which more is better, with times."""
    concordant = discordant = tied_scores = tied_seconds = 0
    for a in range(len(scores)):
        for b in range(a):
            score, second = scores[a] - scores[b], seconds[b] - seconds[a]
            concordant += score * second > 0
            discordant += score * second < 0
            tied_scores += score == 0
            tied_seconds += second == 0
    pairs = len(scores) * (len(scores) - 1) / 2
    scale = math.sqrt((pairs - tied_scores) * (pairs - tied_seconds))
    return (concordant - discordant) / scale if scale else 0.0


HEAD = ["case", "search", "default", "random 200", "trials to it", "all seeds", "16", "32", "64", "200"]


def replayed(name: str, seeds: int, *, known_only: bool) -> tuple[list[list[str]], str, dict[str, object]]:
    """Rows, a line of text, and the data of a case."""
    target, workload, remembered = get_target("cpu"), workload_of(name), Remembered()
    times = TimedKernels(name, PLACE, target, known_only=known_only)

    def space() -> Space:
        return Space(workload, target, remembered)

    started = time.perf_counter()
    pool, seconds = searched(RandomSearch(space(), seed=1000), times, POOL)
    rows, data = compared(name, seeds, times, space, seconds)
    taus = [correlation(times, space(), pool, seed) for seed in range(seeds)]
    again = [[item.program for item in searched(evolution(space(), 0), times, GUIDED)[0]] for _ in range(2)]
    best = min(times.seconds.values()) * 1e3
    text = (
        f"{name}: {len(times.seconds)} kernels timed, best {best:.3f} ms; Kendall's tau "
        f"{statistics.median(item[0] for item in taus):.2f} by decisions, "
        f"{statistics.median(item[1] for item in taus):.2f} by loops and decisions "
        f"(of {taus[0][2]} that it has not seen); the same seed gives "
        f"{'the same' if again[0] == again[1] else 'OTHER'} candidates; {time.perf_counter() - started:.0f} s"
    )
    return rows, text, {**data, "tau": taus}


def main() -> None:
    """Replay all cases, or some."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=CASES, action="append")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--replay", action="store_true", help="take no measurements")
    args = parser.parse_args()
    rows, notes, data = [], [], {}
    for name in args.only or CASES:
        made, note, data[name] = replayed(name, args.seeds, known_only=args.replay)
        rows += made
        notes.append(note)
        print(note, flush=True)
    text = markdown_table(HEAD, rows) + "\n\n" + "\n".join(f"- {item}" for item in notes)
    print(text)
    save(f"tuning-replay-{'-'.join(data)}", {"machine": machine(), "cases": data}, text)


if __name__ == "__main__":
    main()
