"""Asks one interface for its devices and prints them as JSON; or a text that says why there are none.

A program, run without the site's packages: `python -I -S probe_child.py opencl`. Functions and values:
OpenCL 3.0 specification, CUDA Driver API reference, HIP API reference.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Callable
from typing import Any

_GPU, _CPU = 4, 2  # CL_DEVICE_TYPE_...
_TYPE, _VENDOR, _NAME, _DRIVER, _PLATFORM_NAME = 0x1000, 0x1001, 0x102B, 0x102D, 0x0902
_ALL = 0xFFFFFFFF
_NO_PLATFORM = -1001  # CL_PLATFORM_NOT_FOUND_KHR
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
_NO_DEVICE = 100  # CUDA_ERROR_NO_DEVICE, hipErrorNoDevice
_PROPERTIES_BYTES, _NAME_BYTES = 16384, 256  # hipDeviceProp_t of every release, and the name in it
_HIP = (
    *(f"libamdhip64.so{version}" for version in (".7", ".6", ".5", ".4", "")),
    *("libgalaxyhip.so.5", "libgalaxyhip.so"),
)
"""As `runtime/src/devices/hip.cpp` looks for them."""

Device = dict[str, Any]


def opencl() -> list[Device] | str:
    """Devices of all platforms."""
    library = _library("libOpenCL.so.1", "libOpenCL.so")
    if library is None:
        return "no library"
    count = ctypes.c_uint()
    status = library.clGetPlatformIDs(0, None, ctypes.byref(count))
    if status == _NO_PLATFORM or count.value == 0:
        return "the OpenCL loader finds no driver"
    if status != 0:
        return f"clGetPlatformIDs returned {status}"
    platforms = (ctypes.c_void_p * count.value)()
    library.clGetPlatformIDs(count, platforms, None)
    return [device for platform in platforms if platform for device in _devices(library, platform)]


def _devices(library: Any, platform: int) -> list[Device]:
    handle = ctypes.c_void_p(platform)
    number = ctypes.c_uint()
    kinds = ctypes.c_uint64(_ALL)
    if library.clGetDeviceIDs(handle, kinds, 0, None, ctypes.byref(number)) != 0:
        return []
    found = (ctypes.c_void_p * number.value)()
    library.clGetDeviceIDs(handle, kinds, number, found, None)
    title = _text(library.clGetPlatformInfo, handle, _PLATFORM_NAME)
    return [_opencl_device(library, ctypes.c_void_p(one), title) for one in found]


def _opencl_device(library: Any, device: ctypes.c_void_p, platform: str) -> Device:
    kind, vendor = ctypes.c_uint64(), ctypes.c_uint()
    library.clGetDeviceInfo(device, _TYPE, ctypes.c_size_t(8), ctypes.byref(kind), None)
    library.clGetDeviceInfo(device, _VENDOR, ctypes.c_size_t(4), ctypes.byref(vendor), None)
    words = "gpu" if kind.value & _GPU else "cpu" if kind.value & _CPU else "other"
    name = f"{_text(library.clGetDeviceInfo, device, _NAME)} ({platform})"
    version = _text(library.clGetDeviceInfo, device, _DRIVER)
    return {"name": name, "kind": words, "vendor": vendor.value, "platform": platform, "driver": version}


def _text(ask: Callable[..., int], handle: ctypes.c_void_p, question: int) -> str:
    room = ctypes.create_string_buffer(1024)
    status = ask(handle, question, ctypes.c_size_t(len(room)), room, None)
    return room.value.decode(errors="replace").strip() if status == 0 else "unnamed"


def cuda() -> list[Device] | str:
    """NVIDIA's GPUs."""
    library = _library("libcuda.so.1")
    if library is None:
        return "no library"
    count = ctypes.c_int()
    for name, arguments in (("cuInit", (0,)), ("cuDeviceGetCount", (ctypes.byref(count),))):
        status = getattr(library, name)(*arguments)
        if status == _NO_DEVICE:
            return []
        if status != 0:
            return f"{name} returned {status}"
    return [_cuda_device(library, number) for number in range(count.value)]


def _cuda_device(library: Any, number: int) -> Device:
    name, major, minor = ctypes.create_string_buffer(256), ctypes.c_int(), ctypes.c_int()
    library.cuDeviceGetName(name, 256, number)
    library.cuDeviceGetAttribute(ctypes.byref(major), _MAJOR, number)
    library.cuDeviceGetAttribute(ctypes.byref(minor), _MINOR, number)
    arch = f"sm_{major.value}{minor.value}"
    shown = f"{name.value.decode(errors='replace')} ({arch})"
    return {"name": shown, "kind": "gpu", "arch": arch, "driver": _version(library, "cuDriverGetVersion")}


def _version(library: Any, function: str) -> str:
    """The number of a driver's version; empty where it does not tell."""
    number = ctypes.c_int()
    if not hasattr(library, function) or getattr(library, function)(ctypes.byref(number)) != 0:
        return ""
    return str(number.value)


def hip() -> list[Device] | str:
    """GPUs of AMD or Hygon."""
    library = _library(*_HIP)
    if library is None:
        return "no library"
    count = ctypes.c_int()
    status = library.hipGetDeviceCount(ctypes.byref(count))
    if status not in (0, _NO_DEVICE):
        return f"hipGetDeviceCount returned {status}"
    return [_hip_device(library, number) for number in range(count.value)]


def _maker_on_bus(library: Any, number: int, devices: str = "/sys/bus/pci/devices") -> int:
    """The identifier of a GPU's maker, as the PCI bus tells; 0 where it does not."""
    address = ctypes.create_string_buffer(64)
    if not hasattr(library, "hipDeviceGetPCIBusId"):
        return 0
    if library.hipDeviceGetPCIBusId(address, len(address), number) != 0:
        return 0
    try:
        with open(f"{devices}/{address.value.decode().lower()}/vendor", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read(), 16)
    except (OSError, ValueError):
        return 0


def _hip_device(library: Any, number: int) -> Device:
    """The structure differs between releases: behind the name, the arch is the text that begins with gfx."""
    properties = ctypes.create_string_buffer(_PROPERTIES_BYTES)
    for name in ("hipGetDevicePropertiesR0600", "hipGetDeviceProperties"):
        if hasattr(library, name):
            getattr(library, name)(properties, number)
            break
    name = properties.raw[:_NAME_BYTES].partition(b"\0")[0].decode(errors="replace")
    rest = properties.raw[_NAME_BYTES:]
    at = rest.find(b"gfx")
    arch = "" if at < 0 else rest[at:].partition(b"\0")[0].partition(b":")[0].decode(errors="replace")
    vendor, version = _maker_on_bus(library, number), _version(library, "hipDriverGetVersion")
    return {"name": f"{name} ({arch})", "kind": "gpu", "arch": arch, "vendor": vendor, "driver": version}


def _library(*names: str) -> Any:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


if __name__ == "__main__":
    json.dump({"opencl": opencl, "cuda": cuda, "hip": hip}[sys.argv[1]](), sys.stdout)
