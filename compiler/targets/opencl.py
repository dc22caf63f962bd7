"""OpenCL C on processors and the GPUs of four vendors: the driver compiles the source when a model is loaded.

Where clang and the SPIR-V translator are installed, modules for GPUs carry SPIR-V, too: for drivers without a
compiler of source, and because an error in the text is then found before anybody loads the library.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from compiler.core.cache import ContentCache, content_key
from compiler.core.compilers import compiled
from compiler.core.diagnostics import UsageError, did_you_mean
from compiler.core.process import run
from compiler.core.settings import Settings, child_environment, search_path
from compiler.core.target import TargetFacts
from compiler.render.vocabulary_opencl import OPENCL_CPU, OPENCL_GPU
from compiler.targets.cpu import behind_device, plan_flags
from compiler.targets.device import SOURCE, DeviceLanguage, Image, Images, Module
from compiler.targets.features import LEVELS
from compiler.targets.gpu import INTEL, GpuArch, gpu_arch, gpu_facts
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

LOCAL_BYTES = 256 << 10
"""What runtimes for processors offer a work-group (CL_DEVICE_LOCAL_MEM_SIZE): Intel's this, unless told
otherwise, and PoCL as much as the processor's second-level cache has."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What all GPUs of a vendor offer through OpenCL, as far as it is not what CUDA and HIP offer.

    arch: the one that facts are for; source suits later ones, too. work_items: largest work-group.
    """

    vendor: str
    title: str
    work_items: int
    arch: GpuArch


_row = partial(gpu_arch, threads=2048, registers_unit=65536)

# work_items, shared memory: as drivers report CL_DEVICE_MAX_WORK_GROUP_SIZE and CL_DEVICE_LOCAL_MEM_SIZE
# (guides of NVIDIA and AMD to OpenCL). The rest: data sheets.
GPUS = (
    Gpu("nvidia", "NVIDIA GPUs", 1024,
        _row("sm_70", "V100", 80, fma=64, gigahertz=1.53, gigabytes=900, l2_mib=6,
             lanes=32, static_kib=48, shared_kib=48, registers=255)),
    Gpu("amd", "AMD GPUs", 256,
        _row("gfx906", "Instinct MI50", 60, fma=64, gigahertz=1.73, gigabytes=1024, l2_mib=4,
             lanes=64, static_kib=64, shared_kib=64, registers=256)),
    Gpu("hygon", "Hygon DCUs", 256,
        _row("gfx906", "Z100", 60, fma=64, gigahertz=1.70, gigabytes=1024, l2_mib=4,
             lanes=64, static_kib=64, shared_kib=64, registers=256)),
    Gpu("intel", "Intel GPUs", 256, INTEL),
)  # fmt: skip


# ---------------------------------------------------------------- processors


def _cpu_target(arch: str) -> Target:
    """Host cores behind OpenCL: the schedules of a processor, in vectors of at most 16 lanes.

    Raises what `cpu_facts` raises.
    """
    text, facts = behind_device("opencl-cpu", "opencl c", arch, LOCAL_BYTES)
    return Target(text, facts, OPENCL_CPU, (), plan_flags, _language("cpu"), (facts.arch,))


# ---------------------------------------------------------------- GPUs


def _gpu_facts(gpu: Gpu) -> TargetFacts:
    known = gpu_facts(f"opencl-{gpu.vendor}", "opencl c", [gpu.arch])
    limits = {**dict(known.limits), "threads_per_block": gpu.work_items}
    scopes = known.scopes - {"fragment"}
    return replace(known, intrinsics=frozenset(), scopes=scopes, limits=tuple(limits.items()))


def _gpu_target(arch: str, *, gpu: Gpu) -> Target:
    """The GPUs of one vendor; raises UsageError for an architecture of another."""
    name, known = f"opencl-{gpu.vendor}", gpu.arch.name
    if arch != known:
        raise UsageError(
            f"unknown architecture `{arch}`",
            where=f"target `{name}`",
            why=f"OpenCL C is compiled by the driver for the device it finds; the one name is {known}",
            hint=did_you_mean(arch, [known]) or "leave the architecture out",
        )
    facts, language = _gpu_facts(gpu), _language(gpu.vendor)
    return Target(f"{name}:{known}", facts, OPENCL_GPU, (), plan_flags, language, (known,))


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

    def make() -> bytes:
        what = "the generated OpenCL C was refused"
        argv = [tools.clang, "-c", *_CLANG_FLAGS, "module.cl", "-o", "module.bc"]
        bitcode = compiled(argv, {"module.cl": text}, "module.bc", what)
        argv = [tools.translator, "module.bc", "-o", "module.spv"]
        return compiled(argv, {"module.bc": bitcode}, "module.spv", what)

    return cache.made(content_key("spirv", text, tools.identity), make, ".spv").read_bytes()


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


def _tools(target: Target, settings: Settings) -> str:
    """The host's compiler is enough: the driver compiles the kernels."""
    cxx = find_cxx(settings).description
    if not target.facts.binds_threads:
        return cxx
    return f"{cxx}; {_NO_SPIRV if find_spirv_tools() is None else 'SPIR-V by clang'}"


def _ready(kind: str, title: str, vendors: tuple[int, ...]) -> Readiness:
    def fits(device: ProbedDevice) -> bool:
        return device.kind == kind and (not vendors or device.vendor in vendors)

    maker = {_VENDOR_IDS["amd"]: AMD, _VENDOR_IDS["hygon"]: HYGON}.get(vendors)
    runs = device_runs(OPENCL, title, fits)
    if maker is not None:
        runs = device_of_runs(OPENCL, title, maker, fits)
    return Readiness(with_host(_tools), driver_loads(OPENCL), runs)


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
            (gpu.arch.name,),
            gpu.arch.name,
            partial(_gpu_target, gpu=gpu),
            readiness=_ready("gpu", gpu.title.removesuffix("s"), _VENDOR_IDS[gpu.vendor]),
        )
        for gpu in GPUS
    ),
)
"""Every target of this language."""
