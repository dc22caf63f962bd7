"""Small C programs for the machine that a library is for, and the libraries that its compiler links with."""

from __future__ import annotations

from pathlib import Path

from compiler.core.compilers import compiled
from compiler.core.process import run
from compiler.core.settings import child_environment, load_settings
from compiler.runtime.deployment import interface_header
from compiler.targets.toolchain import find_cxx

_FLAGS = ("-x", "c", "-std=c99", "-O2", "-fPIE")
_LINK = ("-pie", "-Wl,--as-needed", "-Wl,--build-id=none", "-Wl,-z,relro,-z,now,-z,noexecstack", "-s")
_LIBRARIES = ("-ldl", "-lm")
_PROBE_SECONDS = 60.0


def build_program(text: str, machine: str, *flags: str) -> bytes:
    """The program of a C source that may include `tk_model.h`, for a machine as `uname -m` says it.

    The same text and compiler give the same bytes. Raises HostError where there is no compiler for the
    machine, and BuildError when it refuses.
    """
    cxx = find_cxx(load_settings(), machine)
    files = {"program.c": text, "tk_model.h": interface_header()}
    argv = [cxx.path, *_FLAGS, *flags, "program.c", "-o", "program", *_LINK, *_LIBRARIES]
    return compiled(argv, files, "program", f"{cxx.description} refused a C program of tk")


def linked_library(name: str, machine: str) -> Path | None:
    """The file of a shared library (`libm.so.6`) as the machine's compiler finds it; None where it has none.

    Raises HostError where there is no compiler for the machine.
    """
    cxx = find_cxx(load_settings(), machine)
    argv = [cxx.path, f"-print-file-name={name}"]
    said = run(argv, env=child_environment(), timeout=_PROBE_SECONDS).stdout.strip()
    return Path(said).resolve() if "/" in said and Path(said).is_file() else None
