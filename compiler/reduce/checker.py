"""Whether a model still shows the fault: each is tried in a process of its own, and what it did is kept."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from compiler.core import disk
from compiler.core.cache import content_key
from compiler.core.diagnostics import CrashError, TkError
from compiler.core.files import stream_atomic, write_atomic
from compiler.core.forked import Forked, Tell, run_forked
from compiler.core.process import run
from compiler.core.progress import Progress
from compiler.reduce.candidate import Candidate
from compiler.reduce.report import CRASH, HANG, SLOW, UNSUPPORTED, WRONG, Fault, ReduceRequest
from compiler.reduce.store import ReductionStore
from compiler.reduce.trial import INVALID, OK, OUT_OF_MEMORY, REFERENCE, Outcome, Setup, try_model
from compiler.stages.finished import package_digest
from compiler.verify.isolate import answer_of, error_of

SHARE = 0.1
"""Of the original error, counted up to the whole scale, that a smaller model has to show."""
SLOW_SHARE = 0.5
"""Of the original multiple of the reference's time."""
_MODEL, _INPUTS, _LIBRARY = "model.onnx", "inputs.npz", "model.so"
_COMMAND = "command"


class OutOfTimeError(Exception):
    """The minutes that a reduction may take are over."""


def same_fault(fault: Fault, outcome: Outcome, slower: float) -> bool:
    """Whether a model shows the fault and not another one.

    A wrong result is to be wrong by a share of the original error, and by outputs whose reference is finite;
    a crash keeps its signal and whether it is at compile time; an error of the compile its class and first
    line but for names and numbers; an unsupported operator the operator and the reason; what is slow a share
    of the original factor.
    """
    if outcome.kind != fault.kind:
        return False
    if fault.kind == WRONG:
        return outcome.size >= SHARE * min(fault.size, 1.0)
    if fault.kind == SLOW:
        return outcome.size >= max(slower, SLOW_SHARE * fault.size)
    if fault.kind == UNSUPPORTED:
        return fault.detail in outcome.detail.splitlines()
    return outcome.detail == fault.detail


@dataclass(slots=True)
class FaultChecker:
    """Tries models in `store`; the same model under the same set-up is tried once, also by another process.

    fault: what they are to show, once that is known. deadline: of the monotonic clock, None for none. tried
    and known count checks.
    """

    request: ReduceRequest
    store: ReductionStore
    setup: Setup
    progress: Progress
    deadline: float | None = None
    fault: Fault | None = None
    tried: int = 0
    known: int = 0
    _version: str = field(default_factory=package_digest)

    def shows(self, candidate: Candidate) -> bool:
        """Whether a model shows the fault; raises OutOfTimeError where there is no time to try it."""
        if self.request.command:
            return self._asked("command", candidate, self.request.command, self._command).kind == _COMMAND
        assert self.fault is not None
        return same_fault(self.fault, self.outcome(candidate), self.request.slower)

    def outcome(self, candidate: Candidate, **changes: Any) -> Outcome:
        """What becomes of a model when it is tried, with some of the set-up changed."""
        setup = replace(self.setup, **changes)

        def tried(candidate: Candidate) -> Outcome:
            model = self.place(candidate)
            feeds = candidate.arrays(self.store)
            return outcome_of(self.forked(lambda tell: try_model(model, feeds, setup, tell).plain()))

        return self._asked("checks", candidate, setup, tried)

    def forked(self, call: Callable[[Tell], Mapping[str, Any]]) -> Forked:
        """Make a call in a process of its own, with the request's limits; raises its errors for users."""

        def answer(tell: Tell) -> Mapping[str, Any]:
            try:
                return call(tell)
            except TkError as error:
                return answer_of(error)

        done = run_forked(answer, seconds=self.request.seconds, memory=self.request.memory)
        if done.answer is not None and "error" in done.answer:
            raise error_of(done.answer["error"])
        return done

    def place(self, candidate: Candidate) -> Path:
        """Write a model beside the constants of all, and what it is fed with."""
        model = self.store.root / _MODEL
        write_atomic(model, candidate.model.SerializeToString())
        if self.request.command:
            write_inputs(candidate, self.store, self.store.root / _INPUTS)
        return model

    def _asked(
        self, kind: str, candidate: Candidate, setup: object, tried: Callable[[Candidate], Outcome]
    ) -> Outcome:
        limits = (self.request.seconds, self.request.memory)
        key = content_key("reduce", candidate.key, repr(setup), repr(limits), self._version)
        self.tried += 1
        if (kept := self.store.noted(kind, key)) is not None:
            self.known += 1
            return Outcome.read(kept)
        if self.deadline is not None and time.monotonic() > self.deadline:
            raise OutOfTimeError
        outcome = tried(candidate)
        disk.remove(self.store.root / _LIBRARY)
        self.store.note(kind, key, outcome.plain())
        return outcome

    def _command(self, candidate: Candidate) -> Outcome:
        """Exit code 0: the model shows the fault."""
        model = self.place(candidate)
        try:
            done = run([*self.request.command, str(model)], timeout=self.request.seconds)
        except CrashError as error:
            return Outcome(OK, message=error.what)
        return Outcome(_COMMAND if done.returncode == 0 else OK, message=f"exit code {done.returncode}")


def write_inputs(candidate: Candidate, store: ReductionStore, path: Path) -> None:
    """What a model is fed with, as an npz file."""
    with stream_atomic(path) as stream:
        np.savez(stream, allow_pickle=False, **candidate.arrays(store))


def outcome_of(done: Forked) -> Outcome:
    """What a trial says, or how it ended."""
    if done.answer is not None:
        return Outcome.read(done.answer)
    doing = done.told.partition(":")[0]
    if doing in ("", REFERENCE):
        return Outcome(INVALID, message="the reference did not survive it")
    if done.timed_out:
        return Outcome(HANG, doing, f"no end within {done.seconds:.3g} s ({done.told})", where=done.told)
    if done.signal == signal.SIGKILL:
        return Outcome(OUT_OF_MEMORY, message="killed by the system")
    name = signal.Signals(done.signal).name
    return Outcome(CRASH, f"{name} ({doing})", f"{name}, {done.told}", where=done.told)


def fault_of(outcome: Outcome) -> Fault:
    """What an outcome shows, as the fault that smaller models are to show."""
    detail = outcome.detail.splitlines()[0] if outcome.kind == UNSUPPORTED else outcome.detail
    return Fault(outcome.kind, detail, outcome.message, outcome.size)
