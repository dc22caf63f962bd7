"""Jobs of `just gpu`: a network compiled with a precision, verified or timed in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from gpu_kernels import together
from support import model_path

import compiler
from compiler.verify.inputs import read_feeds
from toolchain import zoo

_WITHOUT = "-without-"


@dataclass(frozen=True, slots=True)
class Job:
    """A network with a precision; without: passes and rules that are left out, with commas."""

    network: str
    precision: str = "f32"
    without: str = ""

    @classmethod
    def parse(cls, text: str) -> Job:
        """Of `resnet50`, `resnet50+f16` or `resnet50+f16-without-clusters`."""
        name, _, without = text.partition(_WITHOUT)
        network, _, precision = name.partition("+")
        return cls(network, precision or "f32", without)

    def __str__(self) -> str:
        name = self.network if self.precision == "f32" else f"{self.network}+{self.precision}"
        return f"{name}{_WITHOUT}{self.without}" if self.without else name


@dataclass(frozen=True, slots=True)
class Kernel:
    """Microseconds of a kernel's calls in a run: measured, and predicted from its machine code."""

    kernel: int
    calls: int
    nodes: str
    measured: float | None
    predicted: float | None
    by: str


@dataclass(frozen=True, slots=True)
class Row:
    """A job on the GPU; `problem` says why there is no result or no time."""

    job: str
    needed: float | None = None
    p50_ms: float | None = None
    kernels_ms: float | None = None
    gflops: float | None = None
    problem: str = ""
    kernels: tuple[Kernel, ...] = ()

    @property
    def predicted_ms(self) -> float | None:
        """What machine code predicts for all calls; None where it was not read."""
        known = [one.predicted for one in self.kernels]
        return None if not known or None in known else sum(filter(None, known)) / 1e3


def library_path(job: Job, target: str, models: Path) -> Path:
    """Where its library is kept between the stages."""
    return models / f"{job}-{target}.so"


def verified(job: Job, target: str, models: Path) -> Row:
    """Compile and verify it."""
    model, library = model_path(job.network, models), library_path(job, target, models)
    record = zoo.network(job.network)
    dims = dict(record.sizes[0]) if record.sizes else {}
    try:
        without = tuple(filter(None, job.without.split(",")))
        options = compiler.CompileOptions(
            output=library, target=target, precision=job.precision, dims=dims, without=without
        )
        compiler.compile_model(model, options)
        found = compiler.verify_library(compiler.VerifyRequest(library, model, runs=1), timeout=120)
    except compiler.TkError as error:
        return Row(str(job), problem="; ".join(error.lines()))
    problem = (
        ""
        if found.passed
        else "; ".join(
            f"{one.name}: {one.problem or 'wrong result'}" for one in found.decisive if not one.passed
        )
    )
    return Row(str(job), found.needed, problem=problem, kernels=() if problem else predicted(library))


def predicted(library: Path) -> tuple[Kernel, ...]:
    """Its kernels with what machine code predicts, where it can be read."""
    try:
        read = compiler.inspect_library(library, machine_code=True)
    except compiler.TkError as error:
        print(f"{library.name}: machine code is not read: {error}", file=sys.stderr)
        return ()
    found = []
    for number, kernel in enumerate(read.kernels):
        codes = [launch.resources[0].code for launch in kernel.launches if launch.resources]
        known = [code for code in codes if code is not None and code.microseconds is not None]
        whole, by = together(known) if len(known) == len(kernel.launches) > 0 else (None, "")
        found.append(Kernel(number, 1, " ".join(kernel.nodes)[:80], None, whole, by))
    return tuple(found)


def timed(job: Job, target: str, models: Path, seconds: float, *, each: bool) -> Row:
    """Time its library, and each of its kernels where that is asked for."""
    request = compiler.BenchRequest(
        library_path(job, target, models), seconds=seconds, warmup=0.1, profile=each
    )
    try:
        found = compiler.bench_library(request)
    except compiler.TkError as error:
        return Row(str(job), problem="; ".join(error.lines()))
    kernels = tuple(
        Kernel(one.kernel, one.calls, " ".join(one.nodes)[:80], 1e3 * one.ms, None, "")
        for one in found.kernels
    )
    on_device = None if found.on_device is None else found.on_device.kernels_ms
    return Row(str(job), None, found.p50_ms, on_device, found.gflops, kernels=kernels)


def joined(of_text: Sequence[Kernel], of_device: Sequence[Kernel]) -> tuple[Kernel, ...]:
    """Kernels measured, each with what was predicted for its calls, the slowest first."""
    known = {one.kernel: one for one in of_text if one.predicted is not None}
    return tuple(
        replace(one, predicted=one.calls * (known[one.kernel].predicted or 0.0), by=known[one.kernel].by)
        if one.kernel in known
        else one
        for one in of_device
    )


def ran(library: Path) -> None:
    """One run of a library, for a sanitizer to look at."""
    model = compiler.load(library)
    model.run(read_feeds(model.inputs, (), 0))


def child(arguments: Sequence[str], *, seconds: float, before: Sequence[str] = ()) -> tuple[str, str]:
    """(standard output, what went wrong) of this file as a program; a crash is a result, too."""
    argv = [*before, sys.executable, __file__, *arguments]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return "", f"ended after {seconds:.0f} seconds"
    if done.returncode:
        tail = "; ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-6:])
        return done.stdout, f"exit code {done.returncode}: {tail}"
    return done.stdout, ""


def answered(job: Job, stage: str, arguments: Sequence[str], seconds: float) -> Row:
    """The row that a child made of a job."""
    text, problem = child([stage, str(job), *arguments], seconds=seconds)
    if problem:
        return Row(str(job), problem=problem)
    found = json.loads(text.splitlines()[-1])
    return Row(**{**found, "kernels": tuple(Kernel(**one) for one in found["kernels"])})


def serve(arguments: Sequence[str]) -> None:
    """`run` a library, or print the row of a stage (`verify`, `time`, `whole`) of a job."""
    stage, name, *rest = arguments
    if stage == "run":
        ran(Path(name))
        return
    target, models = rest[0], Path(rest[1])
    job = Job.parse(name)
    if stage == "verify":
        row = verified(job, target, models)
    else:
        row = timed(job, target, models, float(rest[2]), each=stage == "time")
    print(json.dumps(asdict(row)))


if __name__ == "__main__":
    serve(sys.argv[1:])
