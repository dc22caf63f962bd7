"""NVIDIA GPUs by CUDA C++: the table of architectures, and modules built into cubins and PTX."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from compiler.core.capabilities import LAST_BLOCK
from compiler.core.diagnostics import HostError
from compiler.core.settings import Settings
from compiler.render.vocabulary_cuda import CUDA
from compiler.targets.cpu import plan_flags
from compiler.targets.cuda_tools import CudaTool, cuda_tools
from compiler.targets.device import DeviceLanguage, Images, Module
from compiler.targets.gpu import (
    GpuArch,
    build_images,
    chosen_archs,
    gpu_arch,
    gpu_facts,
    with_branches,
)
from compiler.targets.matrix_rates import common_rates
from compiler.targets.readiness import CUDA as DRIVER
from compiler.targets.readiness import Readiness, device_arch, device_runs, driver_loads, with_host
from compiler.targets.target import Target, TargetRow

DEFAULT_ARCH = "sm_70"
_PACKAGE = "nvidia-cuda-nvrtc-cu12"

_ASYNC = frozenset({"cp.async"})
_CLUSTER = "cluster"  # feature of an architecture, and scope of the memory that it gives
_HOPPER = _ASYNC | {_CLUSTER}
_CLUSTER_BLOCKS = 8
_EDGE_NANOSECONDS = 1000  # between branches of a graph: assumed, not measured

# 48 KiB is what arrays of a size known to the compiler may take of a block's shared memory, everywhere.
_row = partial(gpu_arch, lanes=32, static_kib=48, registers=255, registers_unit=65536)

# Shared memory that a block may ask for and threads of a unit: CUDA C++ Programming Guide, table "Technical
# Specifications per Compute Capability"; multiply-adds of a unit in a cycle: its "Arithmetic Instructions".
# Copies without waiting (cp.async, 8.0): PTX ISA. Clusters (9.0), of so many blocks everywhere: the guide's
# "Thread Block Clusters". Units, clock, bandwidth, L2: data sheet of the card.
ARCHS: dict[str, GpuArch] = {
    row.name: row
    for row in (
        #    units, threads, fma, GHz, GB/s, L2 in MiB
        _row("sm_70", "V100", 80, 2048, 64, 1.53, 900, 6, shared_kib=96),
        _row("sm_75", "T4", 40, 1024, 64, 1.59, 320, 4, shared_kib=64),
        _row("sm_80", "A100", 108, 2048, 64, 1.41, 1555, 40, shared_kib=163, features=_ASYNC),
        _row("sm_86", "RTX 3090", 82, 1536, 128, 1.70, 936, 6, shared_kib=99, features=_ASYNC),
        _row("sm_87", "Orin", 16, 1536, 128, 1.30, 204, 4, shared_kib=163, features=_ASYNC),
        _row("sm_89", "L4", 58, 1536, 128, 2.04, 300, 48, shared_kib=99, features=_ASYNC),
        _row("sm_90", "H100", 132, 2048, 128, 1.98, 3350, 50, shared_kib=227, features=_HOPPER),
        _row("sm_100", "B200", 148, 2048, 128, 1.96, 8000, 126, shared_kib=227, features=_HOPPER),
        _row("sm_120", "RTX 5090", 170, 1536, 128, 2.41, 1792, 96, shared_kib=99, features=_HOPPER),
    )
}


def _target(arch: str) -> Target:
    """`cuda-nvidia` for a list of architectures; raises UsageError for unknown ones."""
    archs = chosen_archs(arch, ARCHS, {})
    names = tuple(item.name for item in archs)
    facts = gpu_facts("cuda-nvidia", "cuda", archs, common_rates(names), frozenset({LAST_BLOCK}))
    facts = with_branches(facts, _EDGE_NANOSECONDS)
    asked = ("shared_bytes_asked", min(item.shared_most for item in archs))
    facts = replace(facts, limits=(*facts.limits, asked))
    if _CLUSTER in facts.features:
        limits = (*facts.limits, ("blocks_per_cluster", _CLUSTER_BLOCKS))
        facts = replace(facts, limits=limits, scopes=facts.scopes | {_CLUSTER})
    return Target(f"cuda-nvidia:{','.join(names)}", facts, CUDA, (), plan_flags, LANGUAGE, names)


def _build(module: Module, target: Target, settings: Settings) -> Images:
    """A cubin for each architecture, PTX of the highest for later ones, and the source.

    Raises HostError when no toolchain knows an architecture, BuildError when one refuses the text.
    """
    tools = [_tool_for(arch, settings).tool for arch in target.archs]
    return build_images(module.text, target.archs, tools, settings, intermediate=target.archs[-1])


def _tool_for(arch: str, settings: Settings) -> CudaTool:
    tools = cuda_tools(settings)
    for tool in tools:
        if arch in tool.archs:
            return tool
    hint = f"install NVRTC with `pip install {_PACKAGE}` (the extra `cuda`)"
    if not tools:
        what, why = "there is no CUDA compiler on this machine", "neither NVRTC nor nvcc was found"
    else:
        what = f"no CUDA compiler on this machine knows {arch}"
        why = "; ".join(f"{one.tool.description} knows {', '.join(one.archs)}" for one in tools)
    raise HostError(what, why=why, hint=hint)


def _identity(target: Target, settings: Settings) -> str:
    return " ".join(_tool_for(arch, settings).tool.identity for arch in target.archs)


LANGUAGE = DeviceLanguage(("cuda", "gpu", "emulator"), ".cu", _build, _identity, default_streams=(1, 2))


def _tools(target: Target, settings: Settings) -> str:
    found = [_tool_for(arch, settings) for arch in target.archs]
    known = [arch for arch in ARCHS if any(arch in one.archs for one in found)]
    used = "; ".join(dict.fromkeys(one.tool.description for one in found))
    return f"{used} ({', '.join(known)})"


CUDA_NVIDIA = TargetRow(
    "cuda-nvidia",
    "NVIDIA GPUs, CUDA C++",
    tuple(ARCHS),
    DEFAULT_ARCH,
    _target,
    aliases=("cuda",),
    readiness=Readiness(
        with_host(_tools),
        driver_loads(DRIVER),
        device_runs(DRIVER, "NVIDIA GPU", lambda _one: True),
        device_arch(DRIVER, ARCHS),
    ),
)

ROWS = (CUDA_NVIDIA,)
"""Every target of this language."""
