"""Tries graphs: many in one model, so that one compile and one call of the C++ compiler serve them all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

import compiler
from compiler import pipeline
from compiler.core.diagnostics import InternalError, TkError
from compiler.core.files import private_directory
from compiler.frontend.open_dims import OpenDimensionsError
from compiler.frontend.refusals import UnsupportedModelError
from compiler.stages import library_kernels
from compiler.stages.free_sizes import import_for_job
from compiler.stages.job import CompileJob
from compiler.targets.build import KernelBuild
from compiler.verify.check import poisoned
from compiler.verify.device import load_anywhere
from tests.fuzz.graphs import LENGTH, TOGETHER, FuzzGraph, has_length
from tests.fuzz.grow import LONGEST
from tests.fuzz.judge import judge
from tests.fuzz.oracle import Expected, Outputs, expected_of
from tests.fuzz.outcome import FAULTS, Outcome, State

THREADS = (1, 3)
_LINES = 1500
"""Of a source: starting the compiler takes longer than most kernels."""


@dataclass(frozen=True)
class How:
    """How libraries are built: options of the C++ compiler beside the usual ones."""

    flags: tuple[str, ...]


PLAIN = How(("-O1",))
SANITIZED = How(("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-g1"))


@dataclass(frozen=True)
class _Ready:
    graph: FuzzGraph
    expected: Expected


def attempt(graphs: Sequence[FuzzGraph], how: How) -> list[Outcome]:
    """How graphs of one profile end."""
    found: list[Outcome] = []
    ready: list[_Ready] = []
    with pytest.MonkeyPatch.context() as patch, private_directory("tk-fuzz") as directory:
        patch.setattr(pipeline, "KernelBuild", partial(KernelBuild, extra_flags=how.flags))
        patch.setattr(library_kernels, "_FEW", 0)
        patch.setattr(library_kernels, "_SHORTEST", _LINES)
        for graph in graphs:
            if (refused := _refusal(graph, directory)) is not None:
                found.append(refused)
            elif isinstance(expected := expected_of(graph), str):
                found.append(Outcome(graph.seed, State.UNDECIDED, expected))
            else:
                ready.append(_Ready(graph, expected))
        return found + (_compute(ready, directory) if ready else [])


def _job(graphs: Sequence[FuzzGraph], directory: Path) -> CompileJob:
    path = directory / "m.onnx"
    onnx.save(merged([one.proto for one in graphs]), path)
    profile = graphs[0].profile
    dims = {LENGTH: compiler.SizeRange(profile.least, LONGEST)} if any(map(has_length, graphs)) else {}
    options = compiler.CompileOptions(output=directory / "m.so", arch=profile.arch, dims=dims)
    return CompileJob.of(path, options)


def _refusal(graph: FuzzGraph, directory: Path) -> Outcome | None:
    """Why the graph cannot be imported."""
    try:
        import_for_job(_job([graph], directory))
    except (UnsupportedModelError, OpenDimensionsError) as error:
        why = getattr(error, "refusals", ())
        reason = "; ".join(f"{one.op}: {one.reason}" for one in why) or f"{error.what}: {error.why}"
        return Outcome(graph.seed, State.UNSUPPORTED, reason)
    except Exception as error:  # noqa: BLE001 - that is what is looked for
        return Outcome(graph.seed, State.INTERNAL, text_of(error))
    return None


def text_of(error: Exception) -> str:
    if isinstance(error, TkError) and not isinstance(error, InternalError):
        return f"{error.what}: {error.why}"[:600]
    return f"{type(error).__name__}: {error}"[:600]


def merged(models: Sequence[onnx.ModelProto]) -> onnx.ModelProto:
    """The models side by side in one; names are different already."""
    together = onnx.ModelProto()
    together.CopyFrom(models[0])
    for model in models[1:]:
        for kind in ("node", "input", "output", "initializer", "value_info"):
            getattr(together.graph, kind).extend(getattr(model.graph, kind))
    return together


def _compute(ready: Sequence[_Ready], directory: Path) -> list[Outcome]:
    """Compile, run and compare; where that fails, in halves. What is wrong in company is tried alone."""
    try:
        made = _run([one.graph for one in ready], directory)
    except Exception as error:  # noqa: BLE001 - whose fault it is, the halves tell
        if len(ready) == 1:
            return [Outcome(ready[0].graph.seed, State.INTERNAL, text_of(error))]
        middle = len(ready) // 2
        return [*_compute(ready[:middle], directory), *_compute(ready[middle:], directory)]
    found = [judge(one.graph, one.expected, made) for one in ready]
    if len(ready) == 1:
        return found
    company = tuple(one.graph.seed for one in ready)
    return [_again(one, outcome, company, directory) for one, outcome in zip(ready, found, strict=True)]


def _again(one: _Ready, outcome: Outcome, company: tuple[int, ...], directory: Path) -> Outcome:
    """A fault tried alone, where it is smaller; what is right alone goes wrong in company."""
    if outcome.state not in FAULTS:
        return outcome
    (alone,) = _compute([one], directory)
    return replace(outcome, company=company) if alone.state is State.PASSED else alone


def _run(graphs: Sequence[FuzzGraph], directory: Path) -> list[Outputs]:
    """Outputs of each run, of all graphs together; with each number of threads they have to be the same."""
    pipeline.run_job(_job(graphs, directory))
    runs: list[Outputs] = []
    threads = THREADS[graphs[0].seed // TOGETHER % len(THREADS)]
    with load_anywhere(directory / "m.so", threads=threads) as model, model.context() as context:
        for number in range(len(graphs[0].feeds)):
            feeds = {
                name: np.asarray(array, order="C")
                for one in graphs
                for name, array in one.feeds[number].items()
            }
            got = context.run(feeds, out=poisoned(model.outputs, model.output_shapes(feeds)))
            runs.append({name: np.array(array) for name, array in got.items()})
    return runs
