"""The directory that a reduction leaves: the model, its inputs, how to see the fault, and what was found."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from compiler.core.files import stream_atomic, write_atomic
from compiler.core.precision import EXACT
from compiler.reduce.candidate import Candidate, constant_of, input_for
from compiler.reduce.checker import FaultChecker, write_inputs
from compiler.reduce.report import (
    COMPILE,
    DATA,
    INPUTS,
    MODEL,
    README,
    SLOW,
    UNSUPPORTED,
    Fault,
    ReduceReport,
    ReduceRequest,
    reduction_text,
)
from compiler.reduce.store import ReductionStore
from compiler.reduce.trial import record_values

_LIBRARY = "repro.so"
_EMBED_BYTES = 1 << 30
"""Of constants; more lie in a file beside the model, as protobuf has its limit."""


def commands_for(request: ReduceRequest, fault: Fault) -> tuple[str, ...]:
    """What to type where the result lies to see the fault."""
    if request.command:
        return (shlex.join([*request.command, MODEL]),)
    how = [*_given("--target", request.target), *_given("--arch", request.arch)]
    how += _given("--precision", request.precision) if request.precision != EXACT else []
    how += [word for name in request.without for word in ("--without", name)]
    build = shlex.join(["tk", "compile", MODEL, "-o", _LIBRARY, *how])
    if fault.kind in (COMPILE, UNSUPPORTED):
        return (build,)
    run = [*_given("--threads", request.threads), *_given("--device", request.device)]
    if fault.kind == SLOW:
        return (build, shlex.join(["tk", "bench", _LIBRARY, "--baseline", MODEL, *run]))
    tolerance = _given("--tolerance", request.tolerance)
    verify = ["tk", "verify", _LIBRARY, "--model", MODEL, "--input", INPUTS, "--runs", "1", *run, *tolerance]
    return (build, shlex.join(verify))


def _given(option: str, value: object) -> list[str]:
    return [] if value is None else [option, str(value)]


def write_result(report: ReduceReport, candidate: Candidate, checker: FaultChecker) -> None:
    """Write the result to the directory of the report; files of an earlier one are replaced."""
    directory = report.output
    _write_model(_typed(candidate, checker, report.fault), checker.store, directory)
    write_inputs(candidate, checker.store, directory / INPUTS)
    write_atomic(directory / README, "\n".join(reduction_text(report)) + "\n")


def _typed(candidate: Candidate, checker: FaultChecker, fault: Fault) -> onnx.ModelProto:
    """The model with the types of its outputs, where the reference makes them.

    Without extents where it is unsupported: that they are not declared may be why.
    """
    model, feeds = checker.place(candidate), candidate.arrays(checker.store)
    reference, keep, names = checker.setup.reference, checker.store.put, candidate.outputs
    done = checker.forked(lambda _: record_values(model, names, feeds, reference, keep))
    made = onnx.ModelProto()
    made.CopyFrom(candidate.model)
    for one in made.graph.output:
        kept = (done.answer or {}).get(one.name)
        if kept is not None:
            one.CopyFrom(input_for(one.name, checker.store.get(kept)))
        for dim in one.type.tensor_type.shape.dim if fault.kind == UNSUPPORTED else ():
            dim.Clear()
    return made


def _write_model(model: onnx.ModelProto, store: ReductionStore, directory: Path) -> None:
    """With the constants in it, or beside it where they are many; one at a time is in memory."""
    outside = [one for one in model.graph.initializer if one.data_location == TensorProto.EXTERNAL]
    arrays = {one.name: constant_of(one, store) for one in outside}
    total = sum(array.nbytes for array in arrays.values() if array is not None)
    if total <= _EMBED_BYTES:
        for one in outside:
            array = arrays[one.name]
            if array is not None:
                one.CopyFrom(numpy_helper.from_array(np.array(array), one.name))
    else:
        with stream_atomic(directory / DATA) as stream:
            for one in outside:
                array = arrays[one.name]
                assert array is not None
                facts = {"location": DATA, "offset": str(stream.tell()), "length": str(array.nbytes)}
                del one.external_data[:]
                for key, value in facts.items():
                    one.external_data.add(key=key, value=value)
                stream.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    write_atomic(directory / MODEL, model.SerializeToString())
