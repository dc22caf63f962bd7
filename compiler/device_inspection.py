"""The machine code in a library for GPUs, taken apart: a record for each device function and architecture."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from compiler.core.device_code import MachineCode
from compiler.core.diagnostics import TkError, UsageError
from compiler.core.settings import Settings, load_settings
from compiler.reports import KernelInfo, LaunchInfo, ResourceInfo
from compiler.runtime.elf import read_images
from compiler.targets.device_assembly import function_texts
from compiler.targets.machine_model import KINDS, LaunchShape, least_microseconds, machine_code


@dataclass(frozen=True, slots=True)
class DeviceCode:
    """What is known of device functions, by name and architecture, and why some images tell nothing."""

    functions: Mapping[tuple[str, str], MachineCode]
    unread: tuple[str, ...] = ()


def read_device_code(path: Path, kernels: Iterable[KernelInfo]) -> DeviceCode:
    """The machine code of a library's device functions; runs nothing of it.

    Raises UsageError where there is none, HostError or BuildError where no image can be read.
    """
    images = [one for one in read_images(path) if one[0] in KINDS]
    if not images:
        raise UsageError(
            "this library has no machine code of a GPU",
            where=str(path),
            why="only cubins (CUDA) and code objects (HIP) can be read",
            hint="compile for `--target cuda` or `--target rocm`",
        )
    found: dict[tuple[str, str], MachineCode] = {}
    errors: list[TkError] = []
    kernels, settings = tuple(kernels), load_settings()
    for kind, arch, data in images:
        try:
            found |= _of_image(kind, arch, data, kernels, settings)
        except TkError as error:
            errors.append(error)
    if not found and errors:
        raise errors[0]
    return DeviceCode(found, tuple(f"{one.what}: {one.why}" for one in errors))


def with_device_code(path: Path, kernels: Iterable[KernelInfo]) -> tuple[list[KernelInfo], tuple[str, ...]]:
    """Kernels with what the machine code of their launches says, and why some have none; raises as above."""
    kernels = list(kernels)
    code = read_device_code(path, kernels)
    return [_with_code(one, code.functions) for one in kernels], code.unread


def _with_code(kernel: KernelInfo, functions: Mapping[tuple[str, str], MachineCode]) -> KernelInfo:
    launches = tuple(
        replace(
            launch,
            resources=tuple(
                _with_record(one, functions.get((launch.name, one.arch)), kernel) for one in launch.resources
            ),
        )
        for launch in kernel.launches
    )
    return replace(kernel, launches=launches)


def _with_record(resource: ResourceInfo, code: MachineCode | None, kernel: KernelInfo) -> ResourceInfo:
    if code is None:
        return resource
    least = least_microseconds(resource.arch, kernel.flops, kernel.bytes, code.operations)
    return replace(resource, code=code, least_microseconds=least)


def _of_image(
    kind: str, arch: str, data: bytes, kernels: Iterable[KernelInfo], settings: Settings
) -> dict[tuple[str, str], MachineCode]:
    texts = function_texts(kind, arch, data, settings)
    return {
        (launch.name, arch): machine_code(
            kind, arch, launch.name, texts[launch.name], _shape(launch, resource), kernel.bytes
        )
        for kernel in kernels
        for launch in kernel.launches
        for resource in launch.resources
        if resource.arch == arch and launch.name in texts
    }


def _shape(launch: LaunchInfo, resource: ResourceInfo) -> LaunchShape:
    return LaunchShape(launch.grid, launch.block, resource.registers or 0, resource.shared_bytes or 0)
