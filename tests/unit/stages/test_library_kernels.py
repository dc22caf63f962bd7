"""All kernels of a library: the same whoever makes them, by one process where it has to watch."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from compiler.core.plugins import LoadedPlugin, Plugins
from compiler.reports import CompileOptions
from compiler.stages.dump import LOOPS, Dump, Edit
from compiler.stages.job import CompileJob
from compiler.stages.kernels import KernelTask
from compiler.stages.library_kernels import build_kernels, made_kernels, processes_for
from compiler.targets.build import KernelBuild
from tests.support.works import works_of
from toolchain.commands.compile import compile_options

JOB = CompileJob.of(Path("m.onnx"), CompileOptions(Path("m.so"), "cuda", "sm_90"))
HOST = CompileJob.of(Path("m.onnx"), CompileOptions(Path("m.so"), "cpu", "x86-64-v3"))


def by_processes(most: int | None) -> CompileJob:
    return replace(JOB, options=replace(JOB.options, processes=most))


def test_copies_make_the_same_kernels() -> None:
    tasks = [KernelTask.of(func, layouts) for func, layouts in works_of("deep conv", 8) * 2]
    found = []
    for processes in (1, 2):
        job = by_processes(processes)
        assert processes_for(len(tasks), job) == processes
        with made_kernels(tasks, job) as made:
            found.append(build_kernels(made, len(tasks), job, None)[0])
    assert found[0] == found[1]
    assert [one.number for one in found[1]] == [*range(len(tasks))]


@pytest.mark.parametrize(
    ("kernels", "asked", "processes"),
    [(100, 1, 1), (100, 3, 3), (100, None, 4), (5, 4, 2), (1, 4, 1), (0, 4, 1)],
)
def test_how_many_processes(kernels: int, asked: int | None, processes: int) -> None:
    job = by_processes(asked)
    job = replace(job, settings=replace(job.settings, jobs=4))
    assert processes_for(kernels, job) == processes


@pytest.mark.parametrize(
    "watched",
    [
        lambda job, path: replace(job, dump=Dump.open(path)),
        lambda job, path: replace(job, edit=Edit(LOOPS, 0, "", path)),
        lambda job, _: replace(job, options=replace(job.options, limits={"unroll": 3})),
        lambda job, _: replace(job, options=replace(job.options, stop_after="schedule")),
        lambda job, _: replace(job, target=replace(job.target, plugins=Plugins((cast(LoadedPlugin, None),)))),
    ],
)
def test_one_process_watches(watched: Callable[[CompileJob, Path], CompileJob], tmp_path: Path) -> None:
    assert processes_for(100, watched(by_processes(4), tmp_path / "x")) == 1


def test_the_command_takes_as_many_as_it_may() -> None:
    assert CompileOptions(Path("m.so")).processes == 1
    assert compile_options().processes is None


# ---------------------------------------------------------------- on to the compiler


class Compiler:
    """Stands in for the build: keeps what it is given."""

    def __init__(self) -> None:
        self.sources: list[tuple[str, str, int]] = []

    def submit(self, name: str, text: str, kernels: int) -> Future[Path]:
        self.sources.append((name, text, kernels))
        done: Future[Path] = Future()
        done.set_result(Path(f"{len(self.sources)}.o"))
        return done


@pytest.mark.parametrize(("count", "sources"), [(3, 3), (256, 256), (257, 6)])
def test_very_many_kernels_are_few_sources(count: int, sources: int) -> None:
    (func, layouts), build = works_of("scalar", 8)[0], Compiler()
    same = [KernelTask.of(func, layouts)] * count
    with made_kernels(same, HOST) as kernels:
        made, objects = build_kernels(kernels, count, HOST, cast(KernelBuild, build))
    assert len(made) == count
    assert len(objects) == len(build.sources) == sources
    assert sum(kernels for _, _, kernels in build.sources) == count
    text = "".join(text for _, text, _ in build.sources)
    assert re.findall(r"void tk_k(\d+)\(", text) == [str(number) for number in range(count)]
    assert build.sources[0][0] == ("kernel 0" if count == sources else "kernels 0 to 49")
