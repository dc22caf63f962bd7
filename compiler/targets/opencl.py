"""OpenCL C on processors and the GPUs of four vendors: the driver compiles the source when a model is loaded.

Where clang and the SPIR-V translator are installed, modules for GPUs carry SPIR-V, too: for drivers without a
compiler of source, and because an error in the text is then found before anybody loads the library.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

from compiler.core.answer import Answer
from compiler.core.cache import ContentCache, content_key
from compiler.core.compilers import run_compiler
from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.core.files import private_directory, write_atomic
from compiler.core.process import run
from compiler.core.settings import Settings, child_environment, search_path
from compiler.core.target import Cache, TargetFacts
from compiler.render.vocabulary_opencl import OPENCL_CPU, OPENCL_GPU
from compiler.targets.cpu import behind_device, plan_flags
from compiler.targets.device import SOURCE, DeviceLanguage, Image, Images, Module
from compiler.targets.features import LEVELS
from compiler.targets.makers import AMD, HYGON, device_of_runs
from compiler.targets.probe import ProbedDevice
from compiler.targets.readiness import OPENCL, Readiness, device_runs, driver_loads, with_host
from compiler.targets.target import Target, TargetRow
from compiler.targets.toolchain import find_cxx

SPIRV = "spirv"
_CLANG_FLAGS = (
    "-x", "cl", "-cl-std=CL1.2", "-target", "spir64",
    "-O2", "-Xclang", "-disable-llvm-passes",  # drivers optimise; LLVM makes what SPIR-V has no words for
    "-Xclang", "-finclude-default-header", "-emit-llvm",
)  # fmt: skip
_NO_SPIRV = (
    "no SPIR-V: clang and llvm-spirv of one version were not found (apt install clang-15 llvm-spirv-15)"
)
_VERSIONS = ("", "-18", "-17", "-16", "-15", "-14")

_KIB, _MIB = 1 << 10, 1 << 20
_GRID = (("grid_x", 2**31 - 1), ("grid_y", 65535), ("grid_z", 65535))

LOCAL_BYTES = 256 * _KIB
"""What runtimes for processors offer a work-group (CL_DEVICE_LOCAL_MEM_SIZE): Intel's this, unless told
otherwise, and PoCL as much as the processor's second-level cache has."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What all GPUs of a vendor offer through OpenCL; hertz, units, bandwidth and l2 are those of `card`.

    arch: the one that facts are for; source suits later ones, too. work_items: largest work-group.
    local: bytes that it may share. registers: of 32 bits, of one work-item. fma: of a unit in a cycle.
    """

    vendor: str
    title: str
    arch: str
    card: str
    work_items: int
    local: int
    registers: int
    lanes: int
    units: int
    fma: int
    hertz: float
    bandwidth: float
    l2: int


# work_items, local: as drivers report CL_DEVICE_MAX_WORK_GROUP_SIZE and CL_DEVICE_LOCAL_MEM_SIZE (guides of
# NVIDIA and AMD to OpenCL; Intel: a sub-slice of the oldest supported GPU). The rest: data sheets.
GPUS = (
    # vendor, title, arch, card, work_items, local, registers, lanes, units, fma, hertz, bandwidth, l2
    Gpu("nvidia", "NVIDIA GPUs", "sm_70", "V100", 1024, 48 * _KIB, 255, 32, 80, 64, 1.53e9, 900e9, 6 * _MIB),
    Gpu(
        "amd",
        "AMD GPUs",
        "gfx906",
        "Instinct MI50",
        256,
        64 * _KIB,
        256,
        64,
        60,
        64,
        1.73e9,
        1024e9,
        4 * _MIB,
    ),
    Gpu("hygon", "Hygon DCUs", "gfx906", "Z100", 256, 64 * _KIB, 256, 64, 60, 64, 1.70e9, 1024e9, 4 * _MIB),
    Gpu(
        "intel",
        "Intel GPUs",
        "spir64",
        "Arc A770",
        256,
        64 * _KIB,
        128,
        16,
        32,
        128,
        2.10e9,
        560e9,
        16 * _MIB,
    ),
)


# ---------------------------------------------------------------- processors


def _cpu_target(arch: str) -> Target:
    """Host cores behind OpenCL: the schedules of a processor, in vectors of at most 16 lanes.

    Raises what `cpu_facts` raises.
    """
    text, facts = behind_device("opencl-cpu", "opencl c", arch, LOCAL_BYTES)
    return Target(text, facts, OPENCL_CPU, (), plan_flags, _language("cpu"), (facts.arch,))


# ---------------------------------------------------------------- GPUs


def _gpu_facts(gpu: Gpu) -> TargetFacts:
    return TargetFacts(
        name=f"opencl-{gpu.vendor}",
        language="opencl c",
        arch=gpu.arch,
        vector_bits=128,  # the widest load or store of one work-item
        vector_registers=gpu.registers,
        fma_per_cycle=gpu.fma / 4,
        hertz=gpu.hertz,
        bandwidth=gpu.bandwidth / gpu.units,
        l1=Cache(gpu.local, 128),
        l2=Cache(gpu.l2, 128),
        l3=Cache(0, 128),
        scopes=frozenset({"global", "constant", "shared", "scratch", "register"}),
        subgroup_sizes=(gpu.lanes,),
        limits=(
            ("threads_per_block", gpu.work_items),
            ("shared_bytes", gpu.local),
            ("shared_bytes_most", gpu.local),
            ("registers_per_thread", gpu.registers),
            ("registers_per_unit", 65536),
            ("threads_per_unit", 2048),
            ("units", gpu.units),
            ("stack_bytes", 1024),
            *_GRID,
        ),
        max_lanes=16,
        launches=True,
        binds_threads=True,
    )


def _gpu_target(arch: str, *, gpu: Gpu) -> Target:
    """The GPUs of one vendor; raises UsageError for an architecture of another."""
    if arch != gpu.arch:
        raise UsageError(
            f"unknown architecture `{arch}`",
            where=f"target `opencl-{gpu.vendor}`",
            why=f"OpenCL C is compiled by the driver for the device it finds; the one name is {gpu.arch}",
            hint=did_you_mean(arch, [gpu.arch]) or "leave the architecture out",
        )
    text = f"opencl-{gpu.vendor}:{gpu.arch}"
    return Target(text, _gpu_facts(gpu), OPENCL_GPU, (), plan_flags, _language(gpu.vendor), (gpu.arch,))


# ---------------------------------------------------------------- images


@dataclass(frozen=True, slots=True)
class SpirvTools:
    """clang and the translator from its intermediate form to SPIR-V, of one LLVM version."""

    clang: str
    translator: str
    identity: str


@lru_cache(maxsize=4)
def find_spirv_tools(path: str | None = None) -> SpirvTools | None:
    """The newest pair of clang and llvm-spirv of one version on the PATH, or None."""
    path = search_path() if path is None else path
    for version in _VERSIONS:
        clang, translator = (shutil.which(f"{name}{version}", path=path) for name in ("clang", "llvm-spirv"))
        if clang is not None and translator is not None:
            banners = [
                run([tool, "--version"], env=child_environment()).stdout for tool in (clang, translator)
            ]
            return SpirvTools(clang, translator, content_key("spirv", *banners, *_CLANG_FLAGS))
    return None


def to_spirv(text: str, tools: SpirvTools, cache: ContentCache) -> bytes:
    """SPIR-V of a module's text; raises BuildError when a tool refuses it."""
    key = content_key("spirv", text, tools.identity)
    if found := cache.get(key, ".spv"):
        return found.read_bytes()
    with private_directory("tk-spirv") as directory:
        write_atomic(directory / "module.cl", text)
        steps = (
            [tools.clang, "-c", *_CLANG_FLAGS, "module.cl", "-o", "module.bc"],
            [tools.translator, "module.bc", "-o", "module.spv"],
        )
        for argv in steps:
            run_compiler(argv, directory, "the generated OpenCL C was refused")
        data = (directory / "module.spv").read_bytes()
    cache.put(key, data, ".spv")
    return data


def _build(module: Module, _target: Target, settings: Settings, *, device: str) -> Images:
    """The source and, for GPUs where the tools are installed, SPIR-V; raises BuildError.

    The arch of an image is the kind of device that `runtime/src/devices/opencl_choice.cpp` looks for.
    """
    source = Image(SOURCE, device, module.text.encode())
    driver = "OpenCL C 1.2, compiled by the device's driver"
    if device == "cpu":
        return Images((source,), driver)
    tools = find_spirv_tools()
    if tools is None:
        return Images((source,), driver, notes=(_NO_SPIRV,))
    spirv = to_spirv(module.text, tools, ContentCache(settings.cache_dir / "images"))
    return Images((source, Image(SPIRV, device, spirv)), f"{driver}; SPIR-V by {tools.identity[:12]}")


def _identity(_target: Target, _settings: Settings, *, device: str) -> str:
    tools = None if device == "cpu" else find_spirv_tools()
    return "source alone" if tools is None else tools.identity


@lru_cache(maxsize=8)
def _language(device: str) -> DeviceLanguage:
    build: Callable[[Module, Target, Settings], Images] = partial(_build, device=device)
    identity: Callable[[Target, Settings], str] = partial(_identity, device=device)
    return DeviceLanguage(("opencl", "opencl_choice", "program_cache"), ".cl", build, identity)


# ---------------------------------------------------------------- readiness


def _compiles(target: Target, settings: Settings) -> Answer:
    """The host's compiler is enough: the driver compiles the kernels."""

    def tools() -> str:
        cxx = find_cxx(settings).description
        if not target.facts.binds_threads:
            return cxx
        return f"{cxx}; {_NO_SPIRV if find_spirv_tools() is None else 'SPIR-V by clang'}"

    return with_host(target, settings, tools)


def _ready(kind: str, title: str, vendors: tuple[int, ...]) -> Readiness:
    def fits(device: ProbedDevice) -> bool:
        return device.kind == kind and (not vendors or device.vendor in vendors)

    maker = {_VENDOR_IDS["amd"]: AMD, _VENDOR_IDS["hygon"]: HYGON}.get(vendors)
    runs = device_runs(OPENCL, title, fits)
    if maker is not None:
        runs = device_of_runs(OPENCL, title, maker, fits)
    return Readiness(_compiles, driver_loads(OPENCL), runs)


_VENDOR_IDS = {"nvidia": (0x10DE,), "amd": (0x1002, 0x1022), "hygon": (0x1D94, 0x1002), "intel": (0x8086,)}
"""Of PCI devices, as `runtime/src/devices/opencl_choice.cpp` asks for them."""


ROWS: tuple[TargetRow, ...] = (
    TargetRow(
        "opencl-cpu",
        "host cores, OpenCL C (PoCL, Intel)",
        ("host", *LEVELS),
        "host",
        _cpu_target,
        readiness=_ready("cpu", "OpenCL driver for processors", ()),
    ),
    *(
        TargetRow(
            f"opencl-{gpu.vendor}",
            f"{gpu.title}, OpenCL C",
            (gpu.arch,),
            gpu.arch,
            partial(_gpu_target, gpu=gpu),
            readiness=_ready("gpu", gpu.title.removesuffix("s"), _VENDOR_IDS[gpu.vendor]),
        )
        for gpu in GPUS
    ),
)
"""Every target of this language."""
