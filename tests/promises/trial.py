"""One compile in a copy of this process: how it ends, also where it crashes, hangs or takes memory."""

from __future__ import annotations

import gc
import os
import resource
import signal
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from compiler import CompileOptions, InternalError, TkError
from compiler.compile import compile_model
from compiler.core.forked import Tell, run_forked
from tests.promises.seeds import SEEDS

_GRACE_SECONDS = 10
"""Of a processor beyond what a criterion allows; then the kernel ends what never would."""
_WALL_SECONDS = 1200.0
"""What waits for ever needs no processor; a machine with much else to do ends no trial."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """A call that has ended.

    code: as `tk` would end with; 70 for a defect, minus the signal of a crash, None where it took too long.
    says: its message. cpu_seconds, grown_bytes: what it took of processor time and, beside what this process
    has, of memory. answer: what the call returned.
    """

    code: int | None
    says: str
    cpu_seconds: float
    grown_bytes: int
    answer: Mapping[str, Any]

    def broken(self, seconds: float, memory: int, codes: tuple[int, ...] = (0, 3)) -> str:
        """How this breaks what every model may expect: an exit code of ours, in little time and memory."""
        if self.code is None:
            return f"not ended within {_WALL_SECONDS:g} s"
        if self.code == -signal.SIGXCPU:
            return f"not ended within {seconds + _GRACE_SECONDS:g} s of a processor"
        if self.code not in codes:
            return f"ended with {self.code}: {self.says}"
        if self.cpu_seconds > seconds:
            return f"took {self.cpu_seconds:.1f} s of processor time; {seconds:g} s are allowed"
        if self.grown_bytes > memory:
            return f"took {self.grown_bytes >> 20} MB; {memory >> 20} are allowed"
        return ""


def attempt(call: Callable[[], Mapping[str, Any] | None], *, seconds: float, memory: int) -> Attempt:
    """Make a call that may end in any way; `memory` counts beside what this process holds."""
    warm("network")
    base = _held_bytes()

    def answer(tell: Tell) -> Mapping[str, Any]:
        code, says, made = 0, "", None
        most = int(seconds) + _GRACE_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (most, most + 5))
        try:
            made = call()
        except TkError as error:
            code, says = int(error.code), str(error)
        except Exception as error:  # noqa: BLE001 - what a defect of ours raises
            code, says = 70, f"{type(error).__name__}: {error}"
        own, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        took = own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
        grown = max(own.ru_maxrss << 10, base) - base
        return {"code": code, "says": says, "took": took, "grown": grown, "answer": made or {}}

    try:
        ended = run_forked(answer, seconds=_WALL_SECONDS, memory=2 * memory + (4 << 30))
    except InternalError as error:
        return Attempt(70, str(error), 0, 0, {})
    if ended.answer is None:
        code = None if ended.timed_out else -ended.signal
        return Attempt(code, ended.said[-500:], ended.seconds, 0, {})
    found = ended.answer
    return Attempt(found["code"], found["says"], found["took"], found["grown"], found["answer"])


def compile_here(model: Path, output: Path, **options: Any) -> None:
    """Compile a model as `tk compile` does, in this process; raises TkError."""
    compile_model(model, CompileOptions(output=output, **options))


@cache
def warm(name: str) -> None:
    """Import and find out once, here, what each copy of this process would again for models as this seed."""
    with tempfile.TemporaryDirectory(prefix="promise-") as folder:
        model = Path(folder) / "model.onnx"
        model.write_bytes(SEEDS[name]().SerializeToString())
        compile_here(model, Path(folder) / "sources", emit="source")
    gc.freeze()


def _held_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
