"""Reduction in this process: the fault, fewer nodes, smaller shapes, plainer content, the culprit."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

from compiler import __version__
from compiler.core.cache import content_key
from compiler.core.diagnostics import BadInputError, HostError, UsageError
from compiler.core.files import sha256_file
from compiler.core.progress import Progress, silent
from compiler.core.settings import EMULATORS, load_settings
from compiler.reduce.blame import find_culprit
from compiler.reduce.candidate import Candidate, KnownValues, exposed, fixed_values
from compiler.reduce.checker import FaultChecker, OutOfTimeError, fault_of
from compiler.reduce.prepare import first_candidate
from compiler.reduce.report import CRASH, FAULTS, HANG, SLOW, Culprit, Fault, ReduceReport, ReduceRequest
from compiler.reduce.simplify_model import fewer_attributes, plainer_constants, smaller_shapes
from compiler.reduce.steps import Reducer
from compiler.reduce.store import ReductionStore
from compiler.reduce.trial import INVALID, OK, Outcome, Setup, inferred_values, record_values
from compiler.reduce.write import commands_for, write_result
from compiler.targets import get_target

_VALUES_AT_ONCE = 64
_COMMAND_FAULT = Fault("command", message="the program ends with exit code 0")
_MINUTE = 60.0
_BLAME_PART = 0.5
"""Of the minutes of a reduction, how many more finding the culprit may take."""
_PACKAGES = ("numpy", "onnx", "onnxruntime")


def reduce_here(request: ReduceRequest, progress: Progress = silent) -> ReduceReport:
    """Carry out `request`; this process copies itself for each model that it tries.

    Raises what `isolate.reduce_model` raises.
    """
    started = time.monotonic()
    assert request.work is not None
    store = ReductionStore(request.work / _key(request)[:16])
    with suppress(ImportError):  # once, and not in every copy; where it is missing there is another reference
        importlib.import_module("onnxruntime")
    progress("reading the model", 0, 0)
    first, notes = first_candidate(request, store)
    checker = FaultChecker(request, store, Setup.of(request), progress)
    outcome = _first_outcome(first, checker)
    fault = checker.fault or _COMMAND_FAULT
    checker.deadline = started + _MINUTE * request.minutes
    known = KnownValues(_values(first, checker), fixed_values(first))
    reducer = Reducer(first, known, checker, store, progress)
    complete = _reduced(reducer, outcome)
    checker.deadline = time.monotonic() + _BLAME_PART * _MINUTE * request.minutes
    culprit = _culprit(reducer.current, first, fault, checker, progress)
    result = reducer.current
    report = ReduceReport(
        model=request.model,
        output=request.output,
        fault=fault,
        before=first.size,
        after=result.size,
        operators=tuple(_counted(result)),
        culprit=culprit,
        commands=commands_for(request, fault),
        versions=_versions(request),
        seconds=time.monotonic() - started,
        checks=checker.tried,
        known=checker.known,
        complete=complete,
        notes=notes,
    )
    write_result(report, result, checker)
    return report


def _key(request: ReduceRequest) -> str:
    """What decides over the steps of a reduction."""
    parts = asdict(replace(request, output=Path(), work=None, minutes=0))
    return content_key("reduction", sha256_file(request.model), repr(sorted(parts.items())))


def _first_outcome(first: Candidate, checker: FaultChecker) -> Outcome:
    """Find the fault of the original model, and set up the checker for it.

    Raises BadInputError for none, UsageError for a check that has no meaning.
    """
    request = checker.request
    where = str(request.model)
    checker.progress("trying the model", 0, 0)
    if request.check == SLOW and _is_emulated(request):
        raise UsageError(
            "nothing is slow in the emulator",
            where="--check slow",
            why="it looks after every access: its times say nothing about a GPU's",
            hint="name a device with --device",
        )
    if request.command:
        if not checker.shows(first):
            raise BadInputError(
                "the program does not find the fault in the original model",
                where=where,
                why="it did not end with exit code 0",
                hint="exit code 0 says that the model given as the last word shows the fault",
            )
        return Outcome(OK)
    outcome = checker.outcome(first)
    if outcome.kind == INVALID:
        complaint, checker.setup = outcome.message, replace(checker.setup, checked=False)
        outcome = checker.outcome(first)
        if outcome.kind == OK:
            raise BadInputError("the reference cannot run the model", where=where, why=complaint)
    if outcome.kind == OK and request.check in (None, SLOW) and not _is_emulated(request):
        checker.setup = replace(checker.setup, measured=True)
        outcome = checker.outcome(first)
    if outcome.kind not in FAULTS or request.check not in (None, outcome.kind):
        found = f"it is: {outcome.kind}" + (f" ({outcome.message})" if outcome.message else "")
        raise BadInputError(
            "the model shows no fault"
            if request.check is None
            else f"the model shows no fault `{request.check}`",
            where=where,
            why=found,
            hint="give the inputs that show it with --input, or a program of yours with --check",
        )
    checker.fault = fault_of(outcome)
    return outcome


def _is_emulated(request: ReduceRequest) -> bool:
    """Whether kernels of a device run in the emulator."""
    device = request.device or load_settings().device
    return device in EMULATORS and get_target(request.target, request.arch).device is not None


def _values(first: Candidate, checker: FaultChecker) -> dict[str, str]:
    """What the reference makes of every value; where it cannot run the model, zeros of inferred shapes."""
    checker.progress("recording values", 0, 0)
    kept: dict[str, str] | None = checker.store.noted("values", first.key)
    if kept is not None:
        return kept
    names = [name for node in first.nodes for name in node.output if name]
    store = checker.store
    found: dict[str, str] = {}
    if checker.setup.checked:
        for begin in range(0, len(names), _VALUES_AT_ONCE):
            wanted = names[begin : begin + _VALUES_AT_ONCE]
            found |= _recorded(exposed(first, wanted), wanted, checker)
    else:
        model = checker.place(first)
        done = checker.forked(lambda _: inferred_values(model, store.put))
        found = dict(done.answer or {})
    store.note("values", first.key, found)
    return found


def _recorded(candidate: Candidate, names: Sequence[str], checker: FaultChecker) -> dict[str, str]:
    model, feeds = checker.place(candidate), candidate.arrays(checker.store)
    reference, keep = checker.setup.reference, checker.store.put
    done = checker.forked(lambda _: record_values(model, names, feeds, reference, keep))
    return dict(done.answer or {})


def _reduced(reducer: Reducer, outcome: Outcome) -> bool:
    """Take away what can be; False where time ran out before."""
    take, store, progress = reducer.take, reducer.store, reducer.progress
    try:
        reducer.fewer_nodes(outcome.boundaries)
        progress("smaller shapes", 0, 0)
        smaller_shapes(lambda: reducer.current, take, store)
        progress("plainer constants", 0, 0)
        # A fault that shows with any content says nothing of what the culprit is found by.
        alike = reducer.checker.fault is None or reducer.checker.fault.kind not in (CRASH, HANG)
        plainer_constants(lambda: reducer.current, take, store, alike=alike)
        fewer_attributes(lambda: reducer.current, take)
    except OutOfTimeError:
        return False
    return True


def _culprit(
    candidate: Candidate, original: Candidate, fault: Fault, checker: FaultChecker, progress: Progress
) -> Culprit:
    if checker.request.command:
        return Culprit(not_run=("looking for the culprit: a program of yours says what the fault is",))
    return find_culprit(candidate, original, fault, checker, progress)


def _counted(candidate: Candidate) -> Iterator[str]:
    found = Counter(node.op_type for node in candidate.nodes)
    yield from (f"{count} x {name}" if count > 1 else name for name, count in found.items())


def _versions(request: ReduceRequest) -> dict[str, str]:
    found = {"tk": __version__, "python": platform.python_version()}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = "not installed"
    target = get_target(request.target, request.arch)
    try:
        found["C++ compiler"] = target.cxx(load_settings()).description
    except HostError as error:
        found["C++ compiler"] = error.what
    return {**found, "target": target.text}
