"""The state of a device is what the kernel's files say, and nothing where they say nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from toolchain.records.device_state import device_state
from toolchain.records.record import DeviceState

_CARD = {
    "sys/class/drm/card0/device/vendor": "0x10de",
    "sys/class/drm/card1/device/vendor": "0x1002",
    "sys/class/drm/card1/device/hwmon/hwmon3/freq1_input": "1725000000",
    "sys/class/drm/card1/device/hwmon/hwmon3/temp1_input": "61000",
    "sys/class/drm/card1/device/gpu_busy_percent": "40",
}
_CORES = {
    "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq": "3000000",
    "sys/devices/system/cpu/cpu1/cpufreq/scaling_cur_freq": "2000000",
    "sys/class/hwmon/hwmon0/name": "nvme",
    "sys/class/hwmon/hwmon0/temp1_input": "90000",
    "sys/class/hwmon/hwmon1/name": "k10temp",
    "sys/class/hwmon/hwmon1/temp1_input": "55500",
}


def _tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text + "\n")
    return root


@pytest.mark.parametrize(
    ("target", "files", "clock", "temperature"),
    [
        ("x-amd", _CARD, 1725, 61),
        ("x-hygon", _CARD, None, None),
        ("x-cpu", _CORES, 2500, 55.5),
        ("cpu", {"proc/cpuinfo": "cpu MHz\t\t: 2100.5\nflags\t: a b\n"}, 2100.5, None),
        ("cpu", {}, None, None),
    ],
)
def test_files_tell(
    tmp_path: Path, target: str, files: dict[str, str], clock: float | None, temperature: float | None
) -> None:
    found = device_state(target, _tree(tmp_path, files))
    assert (found.clock_mhz, found.temperature_c) == (clock, temperature)


def test_a_card_tells_how_busy_it_is(tmp_path: Path) -> None:
    assert device_state("x-amd", _tree(tmp_path, _CARD)).load == 0.4
    assert device_state("x-intel", tmp_path) == DeviceState()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("1980, 43, 7", DeviceState(clock_mhz=1980, temperature_c=43, load=0.07)),
        ("[N/A], 43, 7", DeviceState()),
    ],
)
def test_the_vendors_tool_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, expected: DeviceState
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\necho '{answer}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert device_state("x-nvidia") == expected
