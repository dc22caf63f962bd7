"""The least that a container needs for a vendor's accelerators on a machine that nobody has looked at yet.

As `privileges`, but numbers of groups are asked of that machine when the command runs, and all of a vendor's
accelerators are given.
"""

from __future__ import annotations

from collections.abc import Mapping

from toolchain.devices.arch import Vendor
from toolchain.devices.options import RunOption
from toolchain.devices.privileges import DOCKER_GPUS, GROUPS, HAMI, INTEL, ROCM_DOCKER

_CDI = "github.com/cncf-tags/container-device-interface"
_ALL_NODES = "nodes of all GPUs; one of them alone: its /dev/dri/renderD<number>"


def _group_of(node: str, source: str = GROUPS) -> RunOption:
    return RunOption(
        "group-add", f'"$(stat -c %g {node})"', f"that machine's group of {node}, by number", source
    )


_OPTIONS: Mapping[Vendor, tuple[RunOption, ...]] = {
    "amd": (
        RunOption("device", "/dev/kfd", "the compute interface that all AMD GPUs share", ROCM_DOCKER),
        RunOption("device", "/dev/dri", _ALL_NODES, ROCM_DOCKER),
        _group_of("/dev/kfd"),
    ),
    "hygon": (
        RunOption("device", "/dev/kfd", "the compute interface that all DCUs share", HAMI),
        RunOption(
            "device", "/dev/mkfd", "the second one of newer DCU drivers; leave it out where it is not", HAMI
        ),
        RunOption("device", "/dev/dri", "nodes of all DCUs", HAMI),
        RunOption(
            "volume",
            "/opt/hyhal:/opt/hyhal:ro",
            "libraries of the host's driver; leave it out without them",
            HAMI,
        ),
        _group_of("/dev/kfd"),
    ),
    "intel": (
        RunOption("device", "/dev/dri", _ALL_NODES, INTEL),
        _group_of("/dev/dri/renderD128"),
    ),
    "nvidia": (
        RunOption("gpus", "all", "NVIDIA's container runtime adds nodes and driver libraries", DOCKER_GPUS),
        RunOption(
            "env",
            "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
            "libraries of the driver for CUDA",
            DOCKER_GPUS,
        ),
    ),
}
_WITH_PODMAN: Mapping[Vendor, tuple[RunOption, ...]] = {
    "nvidia": (
        RunOption("cdi", "nvidia.com/gpu=all", "as NVIDIA's specification on that machine lists them", _CDI),
    ),
}


def options_elsewhere(vendor: Vendor | None, engine: str = "docker") -> tuple[RunOption, ...]:
    """Options of `docker run` or `podman run` that give all accelerators of a vendor; none for the processor.

    Values are words for a shell.
    """
    if vendor is None:
        return ()
    return (_WITH_PODMAN if engine == "podman" else {}).get(vendor) or _OPTIONS[vendor]


def option_words(option: RunOption) -> str:
    """An option as a command line has it."""
    flag = "device" if option.flag == "cdi" else option.flag
    return f"--{flag} {option.value}".rstrip()
