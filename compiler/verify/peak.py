"""This machine's fused multiply-add rate, by a small C++ function that is compiled once and cached."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from compiler.core.cache import ContentCache, content_key
from compiler.core.cache_space import cache_in_use
from compiler.core.diagnostics import BuildError
from compiler.core.files import private_directory
from compiler.core.process import run
from compiler.core.settings import Settings, child_environment
from compiler.targets.cpu import cpu_facts, cpu_flags
from compiler.targets.toolchain import find_cxx

_SOURCE = Path(__file__).with_name("peak.cpp")
_LIMIT_SECONDS = 120.0


def peak_gflops(threads: int, settings: Settings, seconds: float = 0.2) -> float:
    """GFLOP/s of float32 fused multiply-adds with `threads` threads.

    Raises HostError without a C++ compiler and BuildError if it refuses the source.
    """
    with cache_in_use(settings.cache_dir):
        library = ctypes.CDLL(str(_library(settings)))
    function = library.tk_peak_gflops
    function.argtypes = [ctypes.c_int, ctypes.c_double]
    function.restype = ctypes.c_double
    return float(function(threads, seconds))


def _library(settings: Settings) -> Path:
    cxx = find_cxx(settings)
    facts = cpu_facts("host")
    sizes = (
        f"-DTK_VECTOR_BYTES={facts.vector_bits // 8}",
        f"-DTK_VECTOR_REGISTERS={facts.vector_registers}",
    )
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
