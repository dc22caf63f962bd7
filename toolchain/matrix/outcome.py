"""What the results of a trial's steps say: its state, and the numbers that a record keeps."""

from __future__ import annotations

import math
import signal
from collections import Counter
from collections.abc import Mapping
from typing import Any

from compiler import ExitCode
from toolchain.matrix.steps import StepResult
from toolchain.records.record import Accuracy, State, UnsupportedOperator

_DURING = {
    "model": {ExitCode.CRASHED: State.CRASHED},
    "compile": {
        ExitCode.HOST: State.NOT_RUN,
        ExitCode.CRASHED: State.CRASHED,
        ExitCode.BAD_INPUT: State.COMPILE_FAILED,
        ExitCode.USAGE: State.COMPILE_FAILED,
        ExitCode.BUILD: State.COMPILE_FAILED,
        ExitCode.INTERNAL: State.COMPILE_FAILED,
    },
    "verify": {
        ExitCode.WRONG_RESULT: State.WRONG,
        ExitCode.CRASHED: State.CRASHED,
        ExitCode.BUILD: State.COMPILE_FAILED,  # the device's driver or the emulator compiles, too
        ExitCode.INTERNAL: State.CRASHED,
        ExitCode.HOST: State.COMPILED_ONLY,  # a library was made; this machine lacks what runs it
    },
    "bench": {ExitCode.CRASHED: State.CRASHED, ExitCode.BUILD: State.COMPILE_FAILED,
              ExitCode.INTERNAL: State.CRASHED},
}  # fmt: skip
"""What an exit code means, by step; any other code: nothing was shown."""


def state_after(step: str, result: StepResult) -> State | None:
    """The state that a step ends a trial with; None where it succeeded."""
    if result.ended_by == "time":
        return State.TIMED_OUT
    if result.code == ExitCode.OK:
        return None
    if result.wrote_too_much:
        return State.OUT_OF_DISK
    if result.met_a_full_disk:  # says nothing of the model, and may be otherwise the next time
        return State.NOT_RUN
    if result.was_short_of_memory:
        return State.OUT_OF_MEMORY
    if result.code is not None and result.code < 0:
        return State.CRASHED
    code = _exit_code(result.code)
    return State.CRASHED if code is None else _DURING[step].get(code, State.NOT_RUN)


def reason_of(result: StepResult) -> str:
    """Why a step failed."""
    if result.code is not None and result.code < 0:
        return f"tk {result.words[0]} was ended by {_signal_name(-result.code)}"
    return result.reason


def unsupported_operators(inspected: StepResult) -> tuple[UnsupportedOperator, ...]:
    """The operators that `tk inspect` says cannot be compiled, with their number."""
    rows = inspected.document.get("unsupported") or ()
    counts = Counter((str(row["op"]), str(row["reason"])) for row in rows)
    return tuple(
        UnsupportedOperator(operator=operator, count=count, why=why)
        for (operator, why), count in counts.items()
    )


def worst_output(verified: Mapping[str, Any]) -> Accuracy | None:
    """The worst of the comparisons that decide in a report of `tk verify`; None where it has none."""
    outputs = verified.get("selections") or verified.get("outputs")
    if not outputs:
        return None
    worst = max(outputs, key=lambda one: math.inf if one["problem"] else _number(one["needed"]))
    return Accuracy(
        reference=str(verified["reference"]),
        output=str(worst["name"]),
        where=tuple(worst["where"]),
        actual=_number(worst["actual"]),
        expected=_number(worst["expected"]),
        needed=_number(worst["needed"]),
        tolerance=_number(worst["tolerance"]),
        problem=str(worst["problem"]),
    )


def wrong_by(worst: Accuracy | None) -> str:
    """How much an output differs, and where."""
    if worst is None:
        return "outputs differ from the reference's"
    if worst.problem:
        return f"output {worst.output}: {worst.problem}"
    place = ",".join(map(str, worst.where))
    return (
        f"output {worst.output}[{place}] is {worst.actual:.6g}, {worst.reference} has {worst.expected:.6g}: "
        f"{worst.needed:.2g} of the output's scale, {worst.tolerance:.2g} is allowed"
    )


def _number(value: Any) -> float:
    """NaN and infinities are texts in JSON."""
    return float(value)


def _exit_code(code: int | None) -> ExitCode | None:
    """A code of tk's contract; None for any other, which nothing of ours ends with."""
    return next((one for one in ExitCode if one == code), None)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
