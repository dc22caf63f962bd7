"""SYCL on processors and on the GPUs of four vendors: one text, built at load time or ahead of time.

Processors: the SYCL runtime's own compiler builds the kernels, at compile time where the runtime is here
(then loading takes milliseconds), else when the library is loaded. GPUs: DPC++ builds them ahead of time, one
shim for each architecture; for Intel's, the runtime builds them at load time where there is no DPC++.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from compiler.core.answer import Answer, no, not_known, yes
from compiler.core.diagnostics import HostError
from compiler.core.settings import Settings
from compiler.render.vocabulary_sycl import SYCL_CPU, SYCL_GPU
from compiler.runtime.vendor_runtimes import find_intel_runtime, need_sycl
from compiler.targets.cpu import behind_device, plan_flags
from compiler.targets.cuda import ARCHS as NVIDIA_ARCHS
from compiler.targets.device import SOURCE, DeviceLanguage, Image, Images, Module
from compiler.targets.features import LEVELS, host_flags
from compiler.targets.gpu import INTEL, INTEL_DG2, INTEL_PVC, SHUFFLES, GpuArch, chosen_archs, gpu_facts
from compiler.targets.hip import ARCHS as AMD_ARCHS
from compiler.targets.makers import AMD, HYGON, device_of_runs, made_by
from compiler.targets.matrix_rates import JOINT_RATES, common_rates
from compiler.targets.probe import ProbedDevice
from compiler.targets.readiness import (
    CUDA,
    HIP,
    OPENCL,
    Readiness,
    device_arch,
    device_runs,
    sycl_loads,
    with_host,
)
from compiler.targets.sycl_tools import (
    Dpcpp,
    build_ahead,
    build_shim,
    build_syclbin,
    check_headers,
    find_dpcpp,
    module_text,
)
from compiler.targets.target import Target, TargetRow

SHIM = "sycl-shim"
SUFFIX = "kernel-suffix"
SYCLBIN = "syclbin"
PROCESSOR = "spir64_x86_64"
"""DPC++'s name of processors with a vector unit, which images for them carry."""

LOCAL_BYTES = 4 << 20
"""What private arrays of a kernel may take: they lie on a thread's stack, of 8 MB with Intel's runtime."""

INTEL_ARCHS = {
    **{row.name: row for row in (INTEL, INTEL_PVC, INTEL_DG2)},
    PROCESSOR: replace(INTEL, name=PROCESSOR, card="a processor"),
}
"""The processor takes the same kernels as any GPU, to check them."""

_ALIASES = {"gfx916": "gfx906", "pvc": INTEL_PVC.name, "dg2": INTEL_DG2.name}

_HYGON_ARCHS = {name: AMD_ARCHS[name] for name in ("gfx906",)}


# ---------------------------------------------------------------- processors


def _cpu_target(arch: str) -> Target:
    """Host cores behind SYCL: the schedules of a processor, in vectors of at most 16 lanes.

    Raises what `cpu_facts` raises.
    """
    text, facts = behind_device("sycl-cpu", "sycl", arch, LOCAL_BYTES)
    language = DeviceLanguage(("sycl",), ".cpp", _build_cpu, _cpu_identity)
    return Target(text, facts, SYCL_CPU, (), plan_flags, language, (PROCESSOR,))


def _build_cpu(module: Module, _target: Target, settings: Settings) -> Images:
    """The source, the shim and, where the runtime has a device here, the kernels as it runs them.

    Raises HostError without a SYCL runtime and BuildError when it refuses the text.
    """
    return _at_load(module_text(module.text, module.model, None), module.model, PROCESSOR, settings)


def _cpu_identity(_target: Target, settings: Settings) -> str:
    return " ".join((need_sycl(settings).identity, *sorted(host_flags())))


def _at_load(text: str, model: str, arch: str, settings: Settings) -> Images:
    runtime = need_sycl(settings)
    shim = build_shim(runtime, settings)
    images = [Image(SOURCE, arch, text.encode()), Image(SUFFIX, "", f"_{model}".encode())]
    images.append(Image(SHIM, arch, shim))
    notes: tuple[str, ...] = ()
    if arch == PROCESSOR:
        binary = build_syclbin(text, model, runtime, shim, settings)
        images += [Image(SYCLBIN, arch, piece) for piece in binary.pieces]
        notes = (binary.note,) if binary.note else ()
    assert runtime.sycl is not None
    return Images(tuple(images), f"SYCL runtime {runtime.sycl.name}", notes=notes)


# ---------------------------------------------------------------- GPUs


@dataclass(frozen=True, slots=True)
class Vendor:
    """GPUs of one vendor and their architectures."""

    name: str
    title: str
    archs: dict[str, GpuArch]
    default: str


_VENDORS = (
    Vendor("nvidia", "NVIDIA GPUs", NVIDIA_ARCHS, "sm_70"),
    Vendor("amd", "AMD GPUs", AMD_ARCHS, "gfx906"),
    Vendor("hygon", "Hygon DCUs", _HYGON_ARCHS, "gfx906"),
    Vendor("intel", "Intel GPUs", INTEL_ARCHS, "spir64"),
)


def _gpu_target(arch: str, *, vendor: Vendor, language: DeviceLanguage) -> Target:
    """The GPUs of one vendor for a list of architectures; raises UsageError for unknown ones."""
    name = f"sycl-{vendor.name}"
    aliases = {alias: own for alias, own in _ALIASES.items() if own in vendor.archs}
    archs = chosen_archs(arch, vendor.archs, aliases)
    names = tuple(item.name for item in archs)
    rates = common_rates(names, JOINT_RATES)
    known = gpu_facts(name, "sycl", archs, rates)
    intrinsics = SHUFFLES | {unit for unit, _ in rates}
    scopes = known.scopes if rates else known.scopes - {"fragment"}
    facts = replace(known, features=frozenset(), intrinsics=intrinsics, scopes=scopes)
    text = f"{name}:{','.join(names)}"
    return Target(text, facts, SYCL_GPU, (), plan_flags, language, names)


def _gpu_language(vendor: Vendor) -> DeviceLanguage:
    build, identity = partial(_build_gpu, vendor=vendor), partial(_gpu_identity, vendor=vendor)
    return DeviceLanguage(("sycl",), ".cpp", build, identity)


def _build_gpu(module: Module, target: Target, settings: Settings, *, vendor: Vendor) -> Images:
    """A shim with the kernels for each architecture, and the source.

    Raises HostError without DPC++ (for Intel's GPUs: nor a SYCL runtime), BuildError when it refuses.
    """
    text = module_text(module.text, module.model, target.facts.subgroup_sizes[0])
    dpcpp = _dpcpp_for(target, settings, vendor)
    if dpcpp is None:
        return _at_load(text, module.model, target.archs[0], settings)
    images = [Image(SOURCE, "", text.encode())]
    images += [Image(SHIM, arch, build_ahead(text, arch, dpcpp, settings)) for arch in target.archs]
    return Images(tuple(images), dpcpp.description)


def _dpcpp_for(target: Target, settings: Settings, vendor: Vendor) -> Dpcpp | None:
    """The compiler for a target; None where the runtime builds the kernels when a library is loaded.

    Raises HostError where neither can be.
    """
    dpcpp = find_dpcpp(settings)
    if dpcpp is not None and target.archs != (PROCESSOR,):
        return dpcpp
    runtime = find_intel_runtime(settings)
    if vendor.name == "intel" and runtime is not None and runtime.sycl is not None:
        return None
    raise HostError(
        f"there is no DPC++ on this machine, which compiles SYCL for {vendor.title}",
        why="neither icpx nor a clang++ with -fsycl was found",
        hint="set TK_DPCXX to the clang++ of DPC++ or to icpx",
    )


def _gpu_identity(target: Target, settings: Settings, *, vendor: Vendor) -> str:
    dpcpp = _dpcpp_for(target, settings, vendor)
    return _cpu_identity(target, settings) if dpcpp is None else dpcpp.identity


# ---------------------------------------------------------------- readiness


def _runtime_text(_target: Target, settings: Settings) -> str:
    runtime = need_sycl(settings)
    check_headers(runtime)
    assert runtime.sycl is not None
    return f"{runtime.sycl.name}, from {runtime.source}"


def _gpu_tools(target: Target, settings: Settings, *, vendor: Vendor) -> str:
    dpcpp = _dpcpp_for(target, settings, vendor)
    return f"{_runtime_text(target, settings)}, when loaded" if dpcpp is None else dpcpp.description


def _cpu_runs(settings: Settings) -> Answer:
    """The runtime reaches processors through Intel's OpenCL driver."""
    found = sycl_loads(settings)
    runtime = find_intel_runtime(settings) if found else None
    if runtime is None:
        return no("there is no SYCL runtime", found.fix)
    if runtime.opencl is None:
        why = f"there is no driver for processors (libintelocl.so) in {runtime.libraries}"
        return no(why, "pip install intel-opencl-rt")
    return yes(f"processors, by {runtime.opencl.name}")


_DRIVERS = {"nvidia": CUDA, "amd": HIP, "hygon": HIP, "intel": OPENCL}
_MAKERS = {"amd": AMD, "hygon": HYGON}
"""Of devices that one driver offers together."""


def _gpu_ready(vendor: Vendor) -> Readiness:
    title = vendor.title.removesuffix("s")

    def fits(device: ProbedDevice) -> bool:
        return device.kind == "gpu" and device.vendor in (0, _INTEL)

    driver, maker = _DRIVERS[vendor.name], _MAKERS.get(vendor.name)
    native = device_runs(driver, title, fits) if maker is None else device_of_runs(driver, title, maker)

    def runs(settings: Settings) -> Answer:
        found = native(settings)
        if not found:
            return found
        return not_known(f"{found.reason}; whether the SYCL runtime reaches it shows when it is loaded")

    arch = device_arch(driver, vendor.archs, (lambda _: True) if maker is None else made_by(maker))
    return Readiness(with_host(partial(_gpu_tools, vendor=vendor)), sycl_loads, runs, arch)


_INTEL = 0x8086
"""Intel's identifier among makers of PCI devices."""


ROWS: tuple[TargetRow, ...] = (
    TargetRow(
        "sycl-cpu",
        "host cores, SYCL",
        ("host", *LEVELS),
        "host",
        _cpu_target,
        readiness=Readiness(with_host(_runtime_text), sycl_loads, _cpu_runs),
    ),
    *(
        TargetRow(
            f"sycl-{vendor.name}",
            f"{vendor.title}, SYCL",
            tuple(vendor.archs),
            vendor.default,
            partial(_gpu_target, vendor=vendor, language=_gpu_language(vendor)),
            readiness=_gpu_ready(vendor),
        )
        for vendor in _VENDORS
    ),
)
"""Every target of this language."""
