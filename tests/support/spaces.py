"""Random points of the rules' design spaces: drawn, lowered for a language, and what they compute.

    python -m tests.support.spaces [--points 200] [--rules winograd ...] [--languages hip ...] [--seed 0]

draws so many points of every rule for every language, and prints how many of them are right. The oracle is
the interpreter on the function before scheduling; inputs are small whole numbers.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from compiler.core.target import TargetFacts
from compiler.loops.interp import interpret
from compiler.loops.ir import CLUSTER, Call, Func
from compiler.loops.layout import Layout
from compiler.loops.verify import verify_func
from compiler.render.cstyle import render_kernel
from compiler.render.device import render_launches
from compiler.schedule.chooser import AnalyticChooser, RandomChooser, ReplayChooser
from compiler.schedule.races import check_schedule
from compiler.schedule.rules import schedule_func
from compiler.schedule.schedule import Schedule
from compiler.targets import Target, get_target
from tests.support.kernels import lower_all, run_flat
from tests.support.schedules import random_inputs
from tests.support.works import GRAPHS, ON_THREADS, works_of

Decisions = Mapping[str, tuple[int, ...]]

LANGUAGES = {
    "c++": ("cpu:x86-64-v3", "cpu:x86-64-v4"),
    "opencl for processors": ("opencl-cpu:x86-64-v3",),
    "sycl for processors": ("sycl-cpu:x86-64-v3",),
    "cuda": ("cuda-nvidia:sm_80", "cuda-nvidia:sm_70", "cuda-nvidia:sm_90"),
    "hip": ("rocm-amd:gfx908", "rocm-hygon:gfx906"),
    "opencl": ("opencl-intel:spir64", "opencl-amd:gfx906"),
    "sycl": ("sycl-intel:spir64", "sycl-nvidia:sm_80"),
}
"""Targets by language; points take turns."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A rule: graphs that reach it (names begin so), and whether a point's decisions are of it."""

    graphs: tuple[str, ...]
    asked: Callable[[Decisions], bool]


def _ends(*names: str) -> Callable[[Decisions], bool]:
    return lambda found: any(decision.endswith(names) for decision in found)


VECTORS = {
    "contraction": Rule(("conv", "deep conv", "deep 1x1", "dense", "product", "matmul"), _ends(".tile")),
    "depthwise": Rule(("depthwise", "deep depthwise", "deep odd", "deep groups"), _ends(".tile")),
    "winograd": Rule(("winograd",), _ends("winograd.plan")),
    "im2col": Rule(("im2col",), _ends("im2col.columns")),
    "attention": Rule(("attention",), _ends("attention.tile")),
    "rows": Rule(("global", "sum", "softmax", "arg", "max pool"), _ends(".rows.threads")),
    "row_nest": Rule(("softmax", "layer norm", "rms norm"), _ends("row_nest.threads")),
    "window": Rule(("window",), _ends("window.pixels")),
    "elementwise": Rule(("elementwise", "shared", "transpose", "pad", "slice", "join"), _ends(".threads")),
}
"""Rules for processors with vectors."""

THREADS = {
    "gemm": Rule(("conv", "dense", "product", "matmul"), _ends(".swizzle", ".tile")),
    "matrix": Rule(
        ("conv 1x1", "conv 3x3", "product of heads", "dense"),
        lambda found: any(name.endswith(".unit") and value != (0,) for name, value in found.items()),
    ),
    "im2col": Rule(("im2col",), _ends("im2col.columns")),
    "fused winograd": Rule(("winograd-fused",), _ends("winograd.tile")),
    "depthwise": Rule(("separable",), lambda found: any(name.startswith("made.") for name in found)),
    "weighting": Rule(("attention of many rows",), _ends("matmul_1.tile", "matmul.tile")),
    "scores": Rule(
        ("attention of many rows", "attention of long rows"),
        lambda found: any(name.startswith("scores.") for name in found),
    ),
    "chain": Rule(("gate",), _ends("chain.team")),
    "split_k": Rule(("dense long", "product long"), _ends(".chunks")),
    "teams": Rule(("softmax", "layer norm", "global", "rms norm", "sum"), _ends(".team")),
    "sums": Rule(("depthwise", "max pool", "sum", "global"), _ends(".block")),
    "elementwise": Rule(("elementwise", "shared", "transpose", "pad", "slice", "join"), _ends(".block")),
}
"""Rules for devices that bind threads."""


@dataclass(frozen=True, slots=True)
class Point:
    """One kernel of a design space."""

    func: Func
    layouts: Mapping[str, Layout]
    target: Target
    decisions: Decisions
    schedule: Schedule
    name: str


def rules_of(language: str) -> Mapping[str, Rule]:
    """The rules that schedule for a language, by name."""
    known = [get_target(*one.split(":")).facts for one in LANGUAGES[language]]
    if not known[0].binds_threads:
        return VECTORS
    has_units = any(facts.matrix_rates for facts in known)
    has_clusters = any(CLUSTER in facts.scopes for facts in known)
    missing = {name for name, has in (("matrix", has_units), ("chain", has_clusters)) if not has}
    return {name: rule for name, rule in THREADS.items() if name not in missing}


def points(language: str, rule: str, count: int, seed: int = 0) -> Iterator[Point]:
    """Random points of a rule; fewer than `count` where twenty draws for each do not reach the rule."""
    found = rules_of(language)[rule]
    names = [name for name in (*GRAPHS, *ON_THREADS) if name.startswith(found.graphs)]
    targets = [
        get_target(*one.split(":"), precision="tf32" if one == "cuda-nvidia:sm_80" else "f32")
        for one in LANGUAGES[language]
    ]
    given = 0
    for draw in range(20 * count):
        target = targets[draw % len(targets)]
        source = random.Random(f"{language} {rule} {seed} {draw}")
        for point in _drawn(source.choice(names), target, source):
            if found.asked(point.decisions):
                yield point
                given += 1
            if given == count:
                return


def _drawn(name: str, target: Target, source: random.Random) -> Iterator[Point]:
    facts = target.facts
    for func, chosen in works_of(name, _lanes(facts), joined=not facts.binds_threads):
        layouts = {} if facts.binds_threads else chosen
        chooser = RandomChooser(source)
        schedule = schedule_func(func, layouts, facts, chooser)
        yield Point(func, layouts, target, dict(chooser.decisions), schedule, name)


def _lanes(facts: TargetFacts) -> int:
    return facts.lanes(32) if not facts.binds_threads else 4


def assert_right(point: Point) -> Func:
    """A point is a schedule that is allowed, replays, prints, and computes what its function says."""
    facts, vocabulary = point.target.facts, point.target.vocabulary
    verify_func(point.schedule.func)
    check_schedule(point.schedule.func)
    again = ReplayChooser(point.decisions, AnalyticChooser())
    assert schedule_func(point.func, point.layouts, facts, again).func == point.schedule.func
    lowered = lower_all(point.schedule.func, facts)
    if point.target.device is None:
        assert render_kernel(lowered, 0, vocabulary, facts).text
    else:
        assert render_launches(lowered, 0, vocabulary, facts).text
    inputs = random_inputs(point.func)
    subgroup = max(facts.subgroup_sizes, default=32)
    got = run_flat(point.schedule.func, lowered, inputs, shuffle=1, subgroup=subgroup)
    # whole numbers are exact in tf32, what an exponential makes of them is not
    rounds = facts.precision == "tf32" and any(
        isinstance(item, Call) and item.name.startswith("exp") for item in point.func.body.walk()
    )
    most = 2e-3 if rounds else 1e-4
    for key, wanted in interpret(point.func, inputs).items():
        np.testing.assert_allclose(got[key].reshape(wanted.shape), wanted, most, most, err_msg=key)
    return lowered


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw points and print what became of them, a line for each rule and language."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--points", type=int, default=200)
    parser.add_argument("--languages", nargs="+", default=list(LANGUAGES))
    parser.add_argument("--rules", nargs="+", default=[*VECTORS, *THREADS])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    wrong = 0
    for language in options.languages:
        for rule in [name for name in rules_of(language) if name in options.rules]:
            wrong += _tried(language, rule, options.points, options.seed)
    return 1 if wrong else 0


def _tried(language: str, rule: str, count: int, seed: int) -> int:
    drawn = wrong = 0
    values: dict[str, set[tuple[int, ...]]] = {}
    for point in points(language, rule, count, seed):
        drawn += 1
        for name, value in point.decisions.items():
            values.setdefault(name.rpartition(".")[2], set()).add(value)
        try:
            assert_right(point)
        except Exception as error:  # noqa: BLE001 - a campaign goes on
            wrong += 1
            _say(f"{language}, {rule}, {point.name}: {dict(point.decisions)}: {error!r:.400}")
    kinds = ", ".join(f"{name} {len(found)}" for name, found in sorted(values.items()))
    _say(f"{language}, {rule}: {drawn} points, {wrong} wrong; values of {kinds}")
    return wrong


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
