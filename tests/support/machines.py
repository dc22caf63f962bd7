"""What containers need on machines of some vendors, as `tk image run` would choose it."""

from __future__ import annotations

from toolchain.devices.host_facts import Caller, EngineFacts
from toolchain.devices.options import RunOption
from toolchain.devices.privileges import base_options

BASE = base_options(EngineFacts("docker"), Caller(1000, 1000))
AMD = (
    *BASE,
    RunOption("device", "/dev/kfd", "compute"),
    RunOption("device", "/dev/dri/renderD128", "the GPU"),
    RunOption("group-add", "993", "the host's group, by number"),
)
NVIDIA = (
    *BASE,
    RunOption("gpus", "all", "runtime"),
    RunOption("env", "NVIDIA_DRIVER_CAPABILITIES=compute,utility", "x"),
)
HYGON = (
    *BASE,
    RunOption("device", "/dev/mkfd", "compute"),
    RunOption("mount", "/opt/hyhal:/opt/hyhal:ro", "driver"),
)
