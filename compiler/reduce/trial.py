"""One model tried: compiled, run and compared in the process that calls this, which may not survive it."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from compiler.core.diagnostics import BuildError, HostError, TkError
from compiler.core.forked import Tell
from compiler.core.settings import EMULATORS, load_settings
from compiler.frontend.proto import read_model
from compiler.frontend.refusals import UnsupportedModelError
from compiler.pipeline import run_job
from compiler.reduce.applications import Counts
from compiler.reduce.report import COMPILE, CRASH, SLOW, UNSUPPORTED, WRONG, ReduceRequest
from compiler.reduce.rules import WatchedChooser
from compiler.reports import CompileOptions
from compiler.runtime.tensors import Array
from compiler.stages.finished import PACKAGE
from compiler.stages.job import CompileJob
from compiler.targets import get_target
from compiler.verify.bench import kernel_times
from compiler.verify.boundaries import Boundary, boundaries
from compiler.verify.check import compare_outputs, poisoned
from compiler.verify.device import load, load_anywhere
from compiler.verify.reference import Reference, make_reference
from compiler.verify.report import Comparison
from compiler.verify.tolerance import reduction_length

OK, INVALID, OUT_OF_MEMORY = "ok", "invalid", "out of memory"
"""What becomes of a model beside the kinds of faults."""
REFERENCE, COMPILING, RUNNING = "reference", "compile", "run"
"""What a trial says that it does: the first word of what it tells."""

_SECONDS_MEASURED = 0.4
_FEWEST_RUNS = 5

_RUNS_REPLAYED = 6
"""Of a model for a device: one by itself, one that is recorded, and others that replay it."""


@dataclass(frozen=True, slots=True)
class Setup:
    """How models are tried: what of a request decides over the result, and what is changed for finding out.

    measured: whether times are compared with the reference's. checked: whether the reference has to run it.
    """

    target: str | None
    arch: str | None
    precision: str
    threads: int | None
    device: str | None
    tolerance: float | None
    reference: str
    slower: float
    without: tuple[str, ...] = ()
    conservative: tuple[str, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()
    measured: bool = False
    checked: bool = True

    @classmethod
    def of(cls, request: ReduceRequest) -> Setup:
        """The set-up of a request."""
        return cls(
            request.target,
            request.arch,
            request.precision,
            request.threads,
            request.device,
            request.tolerance,
            request.reference,
            request.slower,
            request.without,
        )

    def options(self, output: Path) -> CompileOptions:
        """How its models are compiled."""
        return CompileOptions(
            output=output,
            target=self.target,
            arch=self.arch,
            precision=self.precision,
            without=self.without,
            conservative=self.conservative,
            limits=dict(self.limits),
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a model: a kind of fault, `ok`, `invalid` or `out of memory`.

    detail, message and size: as in `Fault`. worst: the outputs that are wrong, in order. boundaries: the
    kernels of the library, where it was made. rules: of the decisions that the schedules took, by their
    names. where: the pass or place in the compiler that an error came from.
    """

    kind: str
    detail: str = ""
    message: str = ""
    size: float = 0.0
    worst: tuple[str, ...] = ()
    boundaries: tuple[Boundary, ...] = ()
    rules: Mapping[str, str] = field(default_factory=dict)
    where: str = ""

    @property
    def decisions(self) -> tuple[str, ...]:
        """Names of the decisions that the schedules took."""
        return tuple(self.rules)

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Outcome:
        """What `plain` wrote."""
        found = tuple(Boundary(one["value"], tuple(one["nodes"])) for one in data["boundaries"])
        return cls(**{**data, "worst": tuple(data["worst"]), "boundaries": found})


def try_model(model: Path, feeds: Mapping[str, Array], setup: Setup, tell: Tell) -> Outcome:
    """Compile a model, run it once and compare what it makes with the reference.

    The library is written beside the model. `tell` hears what is being done.
    """
    tell(REFERENCE)
    reference, expected, complaint = _expected(model, feeds, setup)
    if expected is None and setup.checked:
        return Outcome(INVALID, message=complaint)
    tell(COMPILING)
    options = setup.options(model.with_suffix(".so"))
    job = CompileJob.of(model, options, lambda doing, *_: tell(f"{COMPILING}: {doing}"))
    chooser = WatchedChooser(job.chooser)
    try:
        run_job(replace(job, chooser=chooser))
    except HostError:
        raise
    except MemoryError as error:
        return Outcome(OUT_OF_MEMORY, message=str(error))
    except UnsupportedModelError as error:
        rows = sorted({f"{one.op}: {one.reason}" for one in error.refusals})
        return Outcome(UNSUPPORTED, "\n".join(rows), error.why.strip())
    except Exception as error:  # noqa: BLE001 - whatever a compile ends with is what is looked for
        return Outcome(COMPILE, class_of_error(error), _first(error), where=error_place(error))
    if expected is None or reference is None:
        return Outcome(OK, rules=chooser.rules)
    tell(RUNNING)
    return replace(_run(model, feeds, expected, reference, setup), rules=chooser.rules)


def count_applications(model: Path, setup: Setup) -> Counts:
    """How often a compile of a model applies each pass, as far as it gets, and to what the last time."""
    job = CompileJob.of(model, setup.options(model.with_suffix(".so")))
    with suppress(Exception):  # whatever a compile ends with is known by now
        run_job(replace(job, options=replace(job.options, stop_after="plan")))
    return {name: (made.count, made.last) for name, made in job.limits.made.items()}


def _expected(
    model: Path, feeds: Mapping[str, Array], setup: Setup
) -> tuple[Reference | None, dict[str, Array] | None, str]:
    """The reference and its outputs; without them, why there are none."""
    try:
        reference, _ = make_reference(model, setup.reference, threads=1)
        return reference, reference.run(feeds), ""
    except HostError:
        raise
    except Exception as error:  # noqa: BLE001 - references raise classes of their own
        return None, None, _first(error)


def _run(
    model: Path,
    feeds: Mapping[str, Array],
    expected: Mapping[str, Array],
    reference: Reference,
    setup: Setup,
) -> Outcome:
    proto = read_model(model)
    length = reduction_length(proto, {name: array.shape for name, array in feeds.items()})
    with (
        load_anywhere(model.with_suffix(".so"), device=setup.device) as library,
        library.context(setup.threads) as context,
    ):
        found = boundaries(proto, library.manifest)
        wrong = list[Comparison]()
        for _ in range(_runs_of(setup)):
            try:
                actual = context.run(feeds, out=poisoned(library.outputs))
            except HostError:
                raise
            except TkError as error:  # a check of the device: of the emulator, say
                return Outcome(CRASH, f"{_finding(error)} ({RUNNING})", _first(error), boundaries=found)
            wrong = wrong or _wrong_outputs(actual, expected, length, setup)
        if wrong:
            largest = max(float("inf") if one.problem else one.needed for one in wrong)
            message = f"output {wrong[0].name!r} differs by {wrong[0].needed:.2g} of its scale"
            names = tuple(one.name for one in wrong)
            return Outcome(WRONG, "", message, largest, names, found)
        if setup.measured:
            ratio = times_as_long(lambda: context.run(feeds), lambda: reference.run(feeds))
            if ratio > setup.slower:
                message = f"{ratio:.2g} times as long as {reference.name} with one thread"
                return Outcome(SLOW, "", message, ratio, (), found)
    return Outcome(OK, boundaries=found)


def _runs_of(setup: Setup) -> int:
    """Devices record a run, and replay it from then on; the emulator, too, where it is to take any order."""
    replays = setup.device not in EMULATORS or load_settings().any_order
    is_device = get_target(setup.target, setup.arch).device is not None
    return _RUNS_REPLAYED if is_device and replays else 1


def _wrong_outputs(
    actual: Mapping[str, Array], expected: Mapping[str, Array], length: int, setup: Setup
) -> list[Comparison]:
    """Those that differ; what is not finite is no yardstick: the fault would be that of the inputs."""
    sound = {name: array for name, array in actual.items() if _is_finite(expected[name])}
    compared = compare_outputs(sound, expected, length, setup.tolerance, precision=setup.precision)
    return [one for one in compared if not one.passed]


def _finding(error: TkError) -> str:
    """What a device says is wrong with a run, without the kernel, thread and place where it is."""
    found = re.match(r"\w+: ([\w -]+):", error.what)
    return found[1] if found else class_of_error(error)


def _is_finite(array: Array) -> bool:
    return array.dtype.kind in "biu" or bool(np.isfinite(array.astype(np.float64)).all())


def times_as_long(run: Callable[[], object], reference: Callable[[], object]) -> float:
    """The quickest run as a multiple of the quickest of the reference, taken in turns.

    What else the machine does makes some runs longer, of either.
    """
    times: tuple[list[float], list[float]] = ([], [])
    while len(times[0]) <= _FEWEST_RUNS or max(map(sum, times)) < _SECONDS_MEASURED:
        for one, measured in zip((run, reference), times, strict=True):
            started = time.perf_counter()
            one()
            measured.append(time.perf_counter() - started)
    mine, others = map(min, times)
    return mine / others


def slowest_kernel(model: Path, feeds: Mapping[str, Array], setup: Setup) -> Mapping[str, Any]:
    """What the slowest kernel of a model computes, and its share of the time; empty where nothing tells."""
    run_job(CompileJob.of(model, setup.options(model.with_suffix(".so"))))
    with (
        load(model.with_suffix(".so"), device=setup.device) as library,
        library.context(setup.threads) as context,
    ):
        times = kernel_times(library, context, feeds)
        kernels = library.manifest["kernels"]
    if not times:
        return {}
    first, total = times[0], sum(one.ms for one in times)
    return {"name": " + ".join(kernels[first.kernel]["ops"]), "nodes": first.nodes, "share": first.ms / total}


# ---------------------------------------------------------------- errors


def _first(error: BaseException) -> str:
    """One line that says what happened."""
    text = error.what if isinstance(error, TkError) else str(error)
    line = (text.strip() or type(error).__name__).splitlines()[0][:300]
    return line if isinstance(error, TkError) else f"{type(error).__name__}: {line}"


def class_of_error(error: BaseException) -> str:
    """What has to stay the same of an error: its class and first line, but for numbers, names and paths."""
    parts = [type(error).__name__, _without_names(_first(error))]
    if isinstance(error, BuildError):
        said = next((line for line in error.why.splitlines() if "error" in line), "")
        parts.append(_without_names(said.rpartition("error:")[2]))
    return ": ".join(filter(None, parts))


def _without_names(text: str) -> str:
    quoted = re.sub(r"`[^`]*`|'[^']*'|\"[^\"]*\"|\u2018[^\u2019]*\u2019|/\S+", "*", text)
    return re.sub(r"\d+", "#", quoted)[:200].strip()


def error_place(error: BaseException) -> str:
    """The pass that an error was raised in, as its notes say, and the innermost function of the compiler."""
    notes = [note.removeprefix("in pass ") for note in getattr(error, "__notes__", ())]
    frames = [
        one for one in traceback.extract_tb(error.__traceback__) if Path(one.filename).is_relative_to(PACKAGE)
    ]
    inner = frames[-1] if frames else None
    place = f"{Path(inner.filename).relative_to(PACKAGE)}: {inner.name}" if inner else ""
    return " at ".join(filter(None, [_listed(notes), place]))


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)


# ---------------------------------------------------------------- what the reference makes


def record_values(
    model: Path,
    names: Sequence[str],
    feeds: Mapping[str, Array],
    reference: str,
    keep: Callable[[Array], str],
) -> dict[str, str]:
    """What the reference makes of each of the model's outputs `names`, kept; tensors, where it can run."""
    try:
        run, _ = make_reference(model, reference, threads=1)
        made = run.run(feeds)
    except HostError:
        raise
    except Exception:  # noqa: BLE001 - references raise classes of their own
        return {}
    return {name: keep(np.asarray(made[name])) for name in names if isinstance(made.get(name), np.ndarray)}


def inferred_values(model: Path, keep: Callable[[Array], str]) -> dict[str, str]:
    """Zeros in the types and shapes that onnx infers for the values of a model, kept."""
    found = {}
    try:
        graph = onnx.shape_inference.infer_shapes(read_model(model), data_prop=True).graph
    except Exception:  # noqa: BLE001 - whatever onnx says of a model that is no good
        return {}
    for one in (*graph.value_info, *graph.output):
        kind = one.type.tensor_type
        known = kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim)
        if known and kind.elem_type in _KNOWN_TYPES:
            shape = tuple(dim.dim_value for dim in kind.shape.dim)
            found[one.name] = keep(np.zeros(shape, onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)))
    return found


_KNOWN_TYPES = {
    onnx.TensorProto.FLOAT,
    onnx.TensorProto.DOUBLE,
    onnx.TensorProto.FLOAT16,
    onnx.TensorProto.INT64,
    onnx.TensorProto.INT32,
    onnx.TensorProto.INT8,
    onnx.TensorProto.UINT8,
    onnx.TensorProto.BOOL,
}
