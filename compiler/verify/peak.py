"""What this machine reaches at best, by small C++ functions that are compiled once and cached."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal

from compiler.core.cache import ContentCache, content_key
from compiler.core.cache_space import cache_in_use
from compiler.core.diagnostics import BuildError
from compiler.core.files import private_directory
from compiler.core.process import run
from compiler.core.settings import Settings, child_environment
from compiler.core.target import TargetFacts
from compiler.targets.cpu import cpu_facts, cpu_flags
from compiler.targets.toolchain import find_cxx

_SOURCE = Path(__file__).with_name("peak.cpp")
_LIMIT_SECONDS = 120.0


class Machine:
    """This machine's best rates with vectors of some width, by default the widest.

    Raises HostError without a C++ compiler and BuildError if it refuses the source.
    """

    def __init__(self, settings: Settings, vector_bits: int | None = None) -> None:
        facts = cpu_facts("host")
        with cache_in_use(settings.cache_dir):
            self._library = ctypes.CDLL(str(_library(settings, facts, vector_bits or facts.vector_bits)))

    def flops(self, threads: int = 1, seconds: float = 0.2) -> float:
        """Operations a second of float32 fused multiply-adds, which count as two, with `threads` threads."""
        return self._call("tk_peak_flops", ctypes.c_int(threads), ctypes.c_double(seconds))

    def clock(self, seconds: float = 0.2) -> float:
        """Cycles a second of a core that computes with vectors."""
        return self._call("tk_clock", ctypes.c_double(seconds))

    def fma_seconds(self, seconds: float = 0.2) -> float:
        """Seconds until the result of a multiply-add can be added to."""
        return self._call("tk_fma_seconds", ctypes.c_double(seconds))

    def memory(
        self, kind: Literal["read", "copy", "store"], size: int, *, threads: int = 1, seconds: float = 0.3
    ) -> float:
        """Bytes a second that each of `threads` threads reads, copies or stores in `size` bytes of its own.

        All threads together; a copy counts what it reads and what it writes.
        """
        arguments = (ctypes.c_int(threads), ctypes.c_size_t(size), ctypes.c_double(seconds))
        return self._call(f"tk_{kind}_rate", *arguments)

    def _call(self, name: str, *arguments: object) -> float:
        function = getattr(self._library, name)
        function.restype = ctypes.c_double
        return float(function(*arguments))


def peak_gflops(threads: int, settings: Settings, seconds: float = 0.2) -> float:
    """GFLOP/s of float32 fused multiply-adds with `threads` threads; raises what `Machine` raises."""
    return Machine(settings).flops(threads, seconds) / 1e9


def _library(settings: Settings, facts: TargetFacts, bits: int) -> Path:
    cxx = find_cxx(settings)
    sizes = (f"-DTK_VECTOR_BYTES={bits // 8}", f"-DTK_VECTOR_REGISTERS={facts.vector_registers}")
    flags = [*cpu_flags(facts, cxx), *sizes, "-shared", "-pthread"]
    cache = ContentCache(settings.cache_dir / "peak")
    key = content_key("peak", _SOURCE.read_bytes(), cxx.identity, *flags)
    return cache.made(key, partial(_compiled, cxx.path, flags), ".so")


def _compiled(compiler: str, flags: Sequence[str]) -> bytes:
    with private_directory("tk-peak") as directory:
        built = directory / "peak.so"
        argv = [compiler, *flags, str(_SOURCE), "-o", str(built)]
        done = run(argv, env=child_environment(), timeout=_LIMIT_SECONDS)
        if done.returncode != 0:
            raise BuildError(
                "the C++ compiler refused the peak measurement", where=" ".join(argv), why=done.stderr[:2000]
            )
        return built.read_bytes()
