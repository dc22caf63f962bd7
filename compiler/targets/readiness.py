"""What this machine can do with a target: compile for it, load its libraries, run them; and why."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from compiler.core.answer import Answer, no, not_known, refusal, yes
from compiler.core.diagnostics import HostError
from compiler.core.settings import Settings
from compiler.runtime.vendor_runtimes import find_intel_runtime
from compiler.targets.probe import NO_LIBRARY, ProbedDevice, probe_devices

if TYPE_CHECKING:
    from compiler.targets.target import Target

UNKNOWN = not_known("this target does not tell")


@dataclass(frozen=True, slots=True)
class Readiness:
    """How to find out what this machine can do with a target.

    compiles: whether its libraries can be built here, for the architectures of a target. loads: whether the
    driver or runtime library that they reach for is here. runs: whether there is a device for them. arch: the
    architecture of the device that is here, which is then the default; empty where there is none.
    """

    compiles: Callable[[Target, Settings], Answer] = lambda _target, _settings: UNKNOWN
    loads: Callable[[Settings], Answer] = lambda _settings: UNKNOWN
    runs: Callable[[Settings], Answer] = lambda _settings: UNKNOWN
    arch: Callable[[Settings], str] = lambda _settings: ""


def host_compiles(target: Target, settings: Settings) -> Answer:
    """Whether the host's compiler serves a target: every library has a part for the host."""
    try:
        cxx = target.cxx(settings)
        target.flags(cxx)
    except HostError as error:
        return refusal(error)
    return yes(cxx.description)


def with_host(tools: Callable[[Target, Settings], str]) -> Callable[[Target, Settings], Answer]:
    """Whether the host's compiler and a device's toolchain serve a target.

    tools: describes the toolchain, or raises HostError.
    """

    def compiles(target: Target, settings: Settings) -> Answer:
        host = host_compiles(target, settings)
        if not host:
            return host
        try:
            return yes(tools(target, settings))
        except HostError as error:
            return refusal(error)

    return compiles


# ---------------------------------------------------------------- drivers and devices


@dataclass(frozen=True, slots=True)
class Driver:
    """An interface to devices that libraries reach for: its name for `probe_devices`, and where to get it."""

    interface: str
    library: str
    install: str


OPENCL = Driver(
    "opencl", "libOpenCL.so.1", "install an OpenCL loader and driver (Debian: apt install pocl-opencl-icd)"
)
CUDA = Driver("cuda", "libcuda.so.1", "install NVIDIA's driver")
HIP = Driver("hip", "libamdhip64.so", "install the HIP runtime (ROCm's hip-runtime-amd; Hygon: DTK)")


@lru_cache(maxsize=8)
def devices_of(driver: Driver, settings: Settings) -> tuple[ProbedDevice, ...] | str:
    """The devices that a driver offers here, or in words why it offers none."""
    return probe_devices(driver.interface, settings)


def driver_loads(driver: Driver) -> Callable[[Settings], Answer]:
    """Whether a driver's library is here."""

    def loads(settings: Settings) -> Answer:
        found = devices_of(driver, settings)
        if found == NO_LIBRARY:
            return no(f"{driver.library} was not found", driver.install)
        return yes(driver.library)

    return loads


def device_runs(
    driver: Driver, title: str, fits: Callable[[ProbedDevice], bool]
) -> Callable[[Settings], Answer]:
    """Whether a driver offers a device that `fits`; `title` says what is looked for."""

    def runs(settings: Settings) -> Answer:
        found = devices_of(driver, settings)
        if found == NO_LIBRARY:
            return no(f"there is no {title} that could be asked for: {driver.library} was not found")
        if isinstance(found, str):
            return no(f"there is no {title}: {found}", driver.install)
        names = [one.title for one in found if fits(one)]
        if names:
            return yes(", ".join(dict.fromkeys(names)))
        others = ", ".join(dict.fromkeys(one.name for one in found)) or "none"
        return no(f"there is no {title}; {driver.library} offers: {others}")

    return runs


def device_arch(
    driver: Driver, known: Container[str], fits: Callable[[ProbedDevice], bool] = lambda _: True
) -> Callable[[Settings], str]:
    """The architecture of the first device of a driver that `fits`, if it is one of those known."""

    def arch(settings: Settings) -> str:
        found = devices_of(driver, settings)
        fitting = () if isinstance(found, str) else [one.arch for one in found if fits(one)]
        return fitting[0] if fitting and fitting[0] in known else ""

    return arch


def sycl_loads(settings: Settings) -> Answer:
    """Whether a SYCL runtime is here."""
    try:
        found = find_intel_runtime(settings)
    except HostError as error:
        return refusal(error)
    if found is None or found.sycl is None:
        return no("libsycl.so was not found", "pip install dpcpp-cpp-rt (the extra `sycl`)")
    return yes(f"{found.sycl.name}, from {found.source}")
