"""A graph that shows a fault, as files with the command that shows it again, and made small by `tk reduce`'s
machinery."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx

from compiler.core.diagnostics import TkError
from compiler.core.files import write_atomic
from compiler.graph.dtypes import packed_array
from compiler.reduce.isolate import reduce_model
from compiler.reduce.report import ReduceRequest
from compiler.runtime.specs import SMALL
from tests.fuzz.graphs import FREE, LENGTH, FuzzGraph, has_length
from tests.fuzz.grow import Array
from tests.fuzz.outcome import Outcome, State

MINUTES = 2.0


def shrink(graph: FuzzGraph, outcome: Outcome, directory: Path) -> Iterator[str]:
    """Write the fault into a directory; says what was written, and what became of it."""
    model = directory / "model.onnx"
    write_atomic(model, graph.proto.SerializeToString())
    run = _run_of(outcome)
    inputs = tuple(_written(directory, name, array) for name, array in graph.feeds[run].items())
    dims = {FREE: _extent(graph, run)} if graph.profile.free else {}
    if has_length(graph):
        dims[LENGTH] = graph.profile.lengths[run]
    request = ReduceRequest(
        model,
        directory / "reduced",
        arch=graph.profile.arch,
        inputs=inputs,
        dims=dims,
        minutes=MINUTES,
        # Of what no other runtime runs, errors of the compile can be looked for still.
        check="compile" if outcome.state is State.INTERNAL else None,
    )
    yield f"python -m tests.fuzz --seed {graph.seed}"
    yield _command(request)
    try:
        report = reduce_model(request)
    except TkError as error:
        yield f"not reduced: {error.what}{': ' + error.why if error.why else ''}"
        return
    yield f"{', '.join(report.operators)} in {report.output}: {report.culprit.kind} {report.culprit.name}"


def _run_of(outcome: Outcome) -> int:
    """The run that shows a mismatch; the first one for what ends otherwise."""
    return int(outcome.reason.split()[1].rstrip(",")) if outcome.reason.startswith("run ") else 0


def _extent(graph: FuzzGraph, run: int) -> int:
    return int(next(iter(graph.feeds[run].values())).shape[0])


def _written(directory: Path, name: str, array: Array) -> str:
    """An input as a file that `--input` takes: npy, and raw bytes of types that numpy does not know."""
    if array.dtype.kind in "biuf":
        path = directory / f"{name}.npy"
        np.save(path, array)
    else:
        path = directory / f"{name}.bin"
        data = packed_array(array) if array.dtype.name in SMALL else array
        write_atomic(path, data.tobytes())
    return f"{name}={path}"


def _command(request: ReduceRequest) -> str:
    words = ["tk", "reduce", str(request.model), "-o", str(request.output), "--arch", str(request.arch)]
    words += [word for one in request.inputs for word in ("--input", one)]
    words += [word for name, extent in request.dims.items() for word in ("--dim", f"{name}={extent}")]
    return shlex.join(words)


def write_model(graph: FuzzGraph, path: Path) -> None:
    """The model alone."""
    onnx.save(graph.proto, path)
