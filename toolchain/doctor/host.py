"""The machine itself: system, processor, memory, compilers."""

from __future__ import annotations

from collections.abc import Iterable

import compiler
from toolchain.console import size
from toolchain.doctor.row import CheckContext, Row, problem

_LITTLE_MEMORY = 4_000_000_000
_COMPILERS = ("g++", "clang++", "nvcc", "hipcc", "icpx")


def system(context: CheckContext) -> Iterable[Row]:
    """Operating system and kernel."""
    facts = dict(_pairs(_text(context, "etc/os-release"), "="))
    name = facts.get("PRETTY_NAME", "").strip('"') or "an unknown system"
    kernel = _text(context, "proc/sys/kernel/osrelease").strip() or "unknown"
    yield Row("system", "ok", f"{name}, kernel {kernel}")


def processor(context: CheckContext) -> Iterable[Row]:
    """Processor, and which of its features a library can count on."""
    facts = dict(_pairs(_text(context, "proc/cpuinfo"), ":"))
    flags = set(facts.get("flags", "").split())
    known = [one for one in ("avx2", "avx512f", "avx512_bf16", "amx_tile") if one in flags]
    name = facts.get("model name", "unknown processor")
    if "asimd" in facts.get("Features", "").split():
        yield Row("processor", "ok", f"{facts.get('model name', 'aarch64')}: NEON")
    elif "avx2" in flags:
        yield Row("processor", "ok", f"{name}: {', '.join(known)}")
    else:
        cause = "kernels use the vectors that there are; without AVX2 they are narrow"
        yield Row("processor", "warning", f"{name}: no AVX2", cause, "compile and measure on a newer machine")


def memory(context: CheckContext) -> Iterable[Row]:
    """Memory that is free for programs."""
    facts = dict(_pairs(_text(context, "proc/meminfo"), ":"))
    text = facts.get("MemAvailable", "").removesuffix(" kB").strip()
    if not text.isdigit():
        yield Row("memory", "ok", "unknown")
    elif int(text) * 1024 >= _LITTLE_MEMORY:
        yield Row("memory", "ok", f"{size(int(text) * 1024)} available")
    else:
        fix = "end other programs, or set TK_JOBS=1"
        yield Row(
            "memory", "warning", f"{size(int(text) * 1024)} available", "large networks need several GB", fix
        )


def targets(_context: CheckContext) -> Iterable[Row]:
    """What can be compiled for without a container: the host's cores, and which of the devices."""
    try:
        cores, *devices = compiler.list_targets()
    except compiler.TkError as error:
        yield problem("targets", error)
        return
    if cores.compiles:
        yield Row(f"target {cores.name}", "ok", cores.compiles.reason)
    else:
        fix = f"{cores.compiles.fix}; or compile in an image: `tk compile --image NAME`"
        yield Row(f"target {cores.name}", "warning", "not ready on this machine", cores.compiles.reason, fix)
    for words, answer in (("compiles here", "compiles"), ("runs here", "runs")):
        names = [one.name for one in devices if getattr(one, answer)]
        yield Row(f"devices: {words}", "ok", ", ".join(names) or "none; `tk targets` says what is missing")


def compilers(context: CheckContext) -> Iterable[Row]:
    """Compilers of this machine; those of vendors come with images."""
    found = [(name, context.version_of(path)) for name in _COMPILERS if (path := context.which(name))]
    text = "; ".join(f"{name}: {version}" for name, version in found)
    yield Row("compilers", "ok", text or "none; images bring their own")


def _text(context: CheckContext, path: str) -> str:
    try:
        return (context.root / path).read_text(errors="replace")
    except OSError:
        return ""


def _pairs(text: str, divider: str) -> Iterable[tuple[str, str]]:
    for line in reversed(text.splitlines()):  # of several processors the first counts
        name, found, value = line.partition(divider)
        if found:
            yield name.strip(), value.strip()
