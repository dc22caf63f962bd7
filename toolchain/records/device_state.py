"""What a machine says of itself at a moment: clock, temperature and load of what runs a target's kernels."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterable
from pathlib import Path

from compiler import TkError, run
from toolchain.records.record import DeviceState

_ROOT = Path("/")
_PCI_VENDORS = {"amd": "0x1002", "hygon": "0x1d94", "intel": "0x8086"}
_PROCESSOR_SENSORS = ("coretemp", "k10temp", "zenpower", "cpu_thermal")
_QUERY = (
    "nvidia-smi",
    "--query-gpu=clocks.sm,temperature.gpu,utilization.gpu",
    "--format=csv,noheader,nounits",
)
_PATIENCE_SECONDS = 10.0


def device_state(target: str, root: Path = _ROOT) -> DeviceState:
    """The state of the first device of a target's vendor, or of this machine's cores.

    clock: MHz, of cores the mean. temperature: degrees Celsius, of cores the hottest sensor. load: of cores
    the processes that want to run (one minute's mean), of a device the busy part.
    """
    vendor = target.rpartition("-")[2]
    if vendor == "nvidia":
        return _nvidia()
    if vendor in _PCI_VENDORS:
        return _card(_PCI_VENDORS[vendor], root)
    return _cores(root)


def _nvidia() -> DeviceState:
    try:
        done = run(_QUERY, timeout=_PATIENCE_SECONDS)
        clock, temperature, busy = (float(one) for one in done.stdout.splitlines()[0].split(","))
    except (TkError, ValueError, IndexError):
        return DeviceState()
    return DeviceState(clock_mhz=clock, temperature_c=temperature, load=busy / 100)


def _card(vendor: str, root: Path) -> DeviceState:
    """By the kernel's interface of graphics drivers (Documentation/gpu/amdgpu/thermal.rst, hwmon's sysfs)."""
    for card in sorted(root.glob("sys/class/drm/card[0-9]*")):
        with contextlib.suppress(OSError):
            if (card / "device" / "vendor").read_text().strip() != vendor:
                continue
            hertz = _numbers(card.glob("device/hwmon/hwmon*/freq1_input"))
            megahertz = _numbers([card / "gt_cur_freq_mhz"])
            degrees = _numbers(card.glob("device/hwmon/hwmon*/temp1_input"))
            busy = _numbers([card / "device" / "gpu_busy_percent"])
            return DeviceState(
                clock_mhz=hertz[0] / 1e6 if hertz else next(iter(megahertz), None),
                temperature_c=degrees[0] / 1e3 if degrees else None,
                load=busy[0] / 100 if busy else None,
            )
    return DeviceState()


def _cores(root: Path) -> DeviceState:
    kilohertz = _numbers(root.glob("sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq"))
    megahertz = [one / 1e3 for one in kilohertz] or _reported_clocks(root)
    degrees = _numbers(
        sensor
        for monitor in root.glob("sys/class/hwmon/hwmon*")
        if _text(monitor / "name") in _PROCESSOR_SENSORS
        for sensor in monitor.glob("temp*_input")
    )
    return DeviceState(
        clock_mhz=round(statistics.fmean(megahertz), 1) if megahertz else None,
        temperature_c=max(degrees) / 1e3 if degrees else None,
        load=round(os.getloadavg()[0], 2),
    )


def _reported_clocks(root: Path) -> list[float]:
    lines = _text(root / "proc/cpuinfo").splitlines()
    return [float(line.partition(":")[2]) for line in lines if line.startswith("cpu MHz")]


def _numbers(paths: Iterable[Path]) -> list[float]:
    found = []
    for path in sorted(paths):
        with contextlib.suppress(ValueError):
            found.append(float(_text(path)))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
