"""AMD's devices and Hygon's are told apart, as far as anything tells."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import compiler
from compiler.targets import probe_child, readiness
from compiler.targets.makers import AMD, HYGON, maker_of
from compiler.targets.probe import ProbedDevice


def hip(name: str, arch: str, vendor: int = 0) -> ProbedDevice:
    return ProbedDevice(f"{name} ({arch})", "gpu", vendor, "", arch)


def opencl(name: str, vendor: int = AMD) -> ProbedDevice:
    platform = "AMD Accelerated Parallel Processing"
    return ProbedDevice(f"{name} ({platform})", "gpu", vendor, platform)


@pytest.mark.parametrize(
    ("device", "maker"),
    [
        (hip("Z100SM", "gfx906"), HYGON),
        (hip("DCU", "gfx906"), HYGON),
        (hip("", "gfx916"), HYGON),
        (hip("K100", "gfx926"), HYGON),
        (hip("", "gfx928"), HYGON),
        (hip("", "gfx936"), HYGON),
        (hip("", "gfx938"), HYGON),
        (hip("Device 66a1", "gfx906", HYGON), HYGON),
        (hip("Device 66a1", "gfx906", AMD), AMD),
        (hip("AMD Instinct MI50/MI60", "gfx906"), AMD),
        (hip("AMD Radeon VII", "gfx906"), AMD),
        (hip("", "gfx90a"), AMD),
        (hip("", "gfx942"), AMD),
        (hip("", "gfx1030"), AMD),
        (hip("Device 66a1", "gfx906"), None),
        (opencl("gfx906:sramecc+:xnack-"), None),
        (opencl("gfx906:sramecc+:xnack-", HYGON), HYGON),
        (opencl("gfx936"), HYGON),
        (opencl("gfx90a:sramecc+:xnack-"), AMD),
    ],
)
def test_makers(device: ProbedDevice, maker: int | None) -> None:
    assert maker_of(device) == maker


@pytest.mark.parametrize(
    ("devices", "amd", "hygon"),
    [
        ((hip("MI210", "gfx90a"),), "yes", "no"),
        ((hip("K100", "gfx926"),), "no", "yes"),
        ((hip("Z100", "gfx906"), hip("MI50", "gfx906")), "yes", "yes"),
        ((hip("Device 66a1", "gfx906"),), "not known", "not known"),
        ((hip("Device 66a1", "gfx906"), hip("MI50", "gfx906")), "yes", "not known"),
        ((), "no", "no"),
    ],
)
def test_who_runs_what(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[ProbedDevice, ...], amd: str, hygon: str
) -> None:
    monkeypatch.setattr(readiness, "probe_devices", lambda *_: devices)
    readiness.devices_of.cache_clear()
    try:
        listed = {one.name: one for one in compiler.list_targets()}
        answers = {name: listed[name].runs for name in ("rocm-amd", "rocm-hygon")}
        assert (answers["rocm-amd"].answer, answers["rocm-hygon"].answer) == (amd, hygon)
        if hygon == "no" and devices:
            assert answers["rocm-hygon"].reason.endswith(f"offers: {devices[0].name}")
        if hygon == "not known":
            reason = "Device 66a1 (gfx906): its name does not tell whether it is AMD's or Hygon's"
            assert answers["rocm-hygon"].reason == reason
        # What SYCL reaches is never known before; what is not there is.
        assert listed["sycl-hygon"].runs.answer == ("no" if hygon == "no" else "not known")
        assert (compiler.arch_here("rocm-hygon") == "gfx906") == ("Z100" in str(devices))
    finally:
        readiness.devices_of.cache_clear()


def library(address: bytes, status: int = 0) -> Any:
    def ask(room: Any, _size: int, _number: int) -> int:
        room.value = address
        return status

    return SimpleNamespace(hipDeviceGetPCIBusId=ask)


def test_the_bus_is_read(tmp_path: Path) -> None:
    (tmp_path / "0000:0c:00.0").mkdir()
    (tmp_path / "0000:0c:00.0" / "vendor").write_text("0x1d94\n")
    ask = probe_child._maker_on_bus
    assert ask(library(b"0000:0C:00.0"), 0, str(tmp_path)) == HYGON
    assert ask(library(b"0000:0d:00.0"), 0, str(tmp_path)) == 0
    assert ask(library(b"0000:0C:00.0", 1), 0, str(tmp_path)) == 0
    assert ask(SimpleNamespace(), 0, str(tmp_path)) == 0
