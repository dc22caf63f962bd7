"""AMD GPUs and Hygon DCUs by HIP: the table of architectures, and modules built into code objects."""

from __future__ import annotations

from collections.abc import Container
from functools import partial

from compiler.core.capabilities import LAST_BLOCK, LOAD_OR_ZERO
from compiler.core.diagnostics import HostError
from compiler.core.settings import Settings
from compiler.render.vocabulary_cuda import HIP
from compiler.targets.cpu import plan_flags
from compiler.targets.device import DeviceLanguage, Images, Module
from compiler.targets.gpu import (
    GpuArch,
    Tool,
    build_images,
    chosen_archs,
    gpu_arch,
    gpu_facts,
    with_branches,
)
from compiler.targets.hip_tools import find_hipcc
from compiler.targets.makers import AMD, HYGON, device_of_runs, made_by
from compiler.targets.matrix_rates import common_rates
from compiler.targets.readiness import HIP as DRIVER
from compiler.targets.readiness import Readiness, device_arch, driver_loads, with_host
from compiler.targets.target import Target, TargetRow

DEFAULT_ARCH = "gfx906"

_CDNA_REGISTERS = 65536
"""Vector registers of a compute unit, lanes counted: 4 SIMDs of 256 for a wave of 64."""

_EDGE_NANOSECONDS = 4000
"""Between branches of a graph, which are queues that wait for each other's signals: assumed, not measured."""

_row = partial(gpu_arch, static_kib=64, shared_kib=64, registers=256)
_cdna = partial(_row, lanes=64, registers_unit=_CDNA_REGISTERS)
_cdna_2 = partial(_row, lanes=64, registers_unit=2 * _CDNA_REGISTERS)
_rdna = partial(_row, lanes=32)

# Lanes, registers, shared memory: LLVM "User Guide for AMDGPU Backend" (waves of 64 by default on gfx9, of 32
# on gfx10 and gfx11) and the manuals of the instruction sets (64 KB of LDS for a group; gfx90a, gfx942: 512
# registers, half of them for accumulation). Units, clock, bandwidth and L2: the data sheet of the card.
ARCHS: dict[str, GpuArch] = {
    row.name: row
    for row in (
        #    units, threads, fma, GHz, GB/s, L2 in MiB
        _cdna("gfx906", "MI50", 60, 2560, 64, 1.73, 1024, 4),
        _cdna("gfx908", "MI100", 120, 2560, 64, 1.50, 1228, 8),
        _cdna_2("gfx90a", "MI210", 104, 2048, 128, 1.70, 1638, 8),
        _cdna_2("gfx942", "MI300X", 304, 2048, 128, 2.10, 5300, 4),
        _rdna("gfx1030", "RX 6800", 60, 1024, 64, 2.10, 512, 4, registers_unit=65536),
        _rdna("gfx1100", "RX 7900 XTX", 96, 1024, 128, 2.50, 960, 6, registers_unit=98304),
    )
}

_GFX9 = frozenset(name for name in ARCHS if name.startswith("gfx9"))
"""Their buffer resources are alike: see tk_load_or_zero."""

_AMD = "ROCm's hipcc (Debian: apt install hipcc)"
_HYGON = "DTK's hipcc"
_ALIASES = {"gfx916": "gfx906"}
_ALIAS_NOTE = (
    "gfx916 was compiled as gfx906, which open compilers know; only DTK's own hipcc knows Hygon's names, "
    "so check the library on the card with `tk verify`"
)


def _target(arch: str, *, name: str) -> Target:
    """The target of a vendor for a list of architectures; raises UsageError for unknown ones."""
    aliases = _ALIASES if name == "rocm-hygon" else {}
    archs = chosen_archs(arch, ARCHS, aliases)
    names = tuple(item.name for item in archs)
    buffers = {LOAD_OR_ZERO} if all(item in _GFX9 for item in names) else set()
    facts = gpu_facts(name, "hip", archs, common_rates(names), frozenset({LAST_BLOCK, *buffers}))
    facts = with_branches(facts, _EDGE_NANOSECONDS)
    aliased = set(arch.split(",")) & set(aliases)
    language = _ALIASED if aliased else _LANGUAGES[name]
    return Target(f"{name}:{','.join(names)}", facts, HIP, (), plan_flags, language, names)


def _build(
    module: Module, target: Target, settings: Settings, *, install: str, notes: tuple[str, ...]
) -> Images:
    """A code object for each architecture, and the source.

    Raises HostError when no toolchain knows an architecture, BuildError when one refuses the text.
    """
    tools = [_tool_for(arch, settings, install) for arch in target.archs]
    return build_images(module.text, target.archs, tools, settings, notes=notes)


def _tool_for(arch: str, settings: Settings, install: str) -> Tool:
    found = find_hipcc(settings)
    if found is None:
        raise HostError(
            "there is no HIP compiler on this machine",
            why="hipcc was not found",
            hint=f"install {install}",
        )
    if found.knows(arch):
        return found.tool
    known = ", ".join(name for name in ARCHS if found.knows(name)) or "none of the architectures of tk"
    raise HostError(
        f"the HIP compiler on this machine does not know {arch}",
        why=f"{found.tool.description} knows {known}",
        hint=f"install a newer {install}",
    )


def _identity(target: Target, settings: Settings, *, install: str) -> str:
    return " ".join(_tool_for(arch, settings, install).identity for arch in target.archs)


def _language(install: str, notes: tuple[str, ...] = ()) -> DeviceLanguage:
    made = partial(_build, install=install, notes=notes)
    identity = partial(_identity, install=install)
    return DeviceLanguage(("hip", "gpu", "emulator"), ".hip", made, identity, default_streams=(0,))


_LANGUAGES = {"rocm-amd": _language(_AMD), "rocm-hygon": _language(_HYGON)}
_ALIASED = _language(_HYGON, (_ALIAS_NOTE,))


def _ready(install: str, title: str, maker: int, archs: Container[str]) -> Readiness:
    def tools(target: Target, settings: Settings) -> str:
        found = [_tool_for(arch, settings, install).description for arch in target.archs]
        return f"{'; '.join(dict.fromkeys(found))} ({', '.join(target.archs)})"

    runs, arch = device_of_runs(DRIVER, title, maker), device_arch(DRIVER, archs, made_by(maker))
    return Readiness(with_host(tools), driver_loads(DRIVER), runs, arch)


ROCM = TargetRow(
    "rocm-amd",
    "AMD GPUs, HIP",
    tuple(ARCHS),
    DEFAULT_ARCH,
    partial(_target, name="rocm-amd"),
    aliases=("rocm", "hip"),
    readiness=_ready(_AMD, "AMD GPU", AMD, ARCHS),
)
DTK = TargetRow(
    "rocm-hygon",
    "Hygon DCUs, HIP",
    ("gfx906", *_ALIASES),
    DEFAULT_ARCH,
    partial(_target, name="rocm-hygon"),
    aliases=("dtk",),
    readiness=_ready(_HYGON, "Hygon DCU", HYGON, ("gfx906", *_ALIASES)),
)

ROWS = (ROCM, DTK)
"""Every target of this language."""
