"""Processors by microarchitecture: found by CPUID, named apart from features, and numbers that can be."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from compiler.targets import cpu, get_target
from compiler.targets.features import FEATURES, LEVELS, host_cpuinfo
from compiler.targets.microarchitectures import NAMES, ROWS, Microarchitecture, find_row

MILAN = """\
processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: 1
model name\t: AMD EPYC 7763 64-Core Processor

processor\t: 1
vendor_id\t: GenuineIntel
cpu family\t: 6
model\t\t: 85
"""
GRAVITON = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd40\n"
PENTIUM = "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 14\n"


@pytest.mark.parametrize(
    ("text", "name"), [(MILAN, "zen3"), (GRAVITON, "neoverse-v1"), (PENTIUM, None), ("nothing", None)]
)
def test_a_processor_is_found_by_what_the_system_says_of_the_first(
    tmp_path: Path, text: str, name: str | None
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    found = find_row(host_cpuinfo(path))
    assert (found and found.name) == name


def test_no_processor_has_two_rows() -> None:
    ids = [(one.vendor, one.family, model) for row in ROWS for one in row.ids for model in one.models]
    assert len(ids) == len(set(ids))


def test_names_are_no_features_and_no_levels() -> None:
    assert len(NAMES) == len(ROWS)
    assert not set(NAMES) & {*FEATURES, *LEVELS, "host"}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_numbers_can_be(row: Microarchitecture) -> None:
    assert row.l1.bytes < row.l2.bytes
    assert row.l1.bytes_per_cycle > row.l2.bytes_per_cycle >= row.l3.bytes_per_cycle
    assert row.gigabytes <= row.l3.bytes_per_cycle * row.gigahertz  # memory is no faster than the last cache
    assert all(one.stores <= one.loads for one in row.rates.values())


@pytest.mark.parametrize(
    ("arch", "fma", "loads"),
    [("x86-64-v3+zen4", 2, 2), ("x86-64-v4+zen4", 1, 1), ("x86-64-v4+skylake-sp", 2, 2)],
)
def test_rates_are_those_of_the_width(arch: str, fma: float, loads: float) -> None:
    facts = get_target("cpu", arch).facts
    assert (facts.fma_per_cycle, facts.loads_per_cycle) == (fma, loads)


def test_a_level_is_the_same_on_every_machine() -> None:
    facts = get_target("cpu", "x86-64-v3").facts
    assert facts.microarchitecture == ""
    assert facts == get_target("cpu", "x86-64-v3").facts
    assert get_target("cpu", "x86-64-v3+zen3").text == "cpu:x86-64-v3+zen3"


@pytest.mark.parametrize(("cpuinfo", "name"), [(GRAVITON, "armv8-a+neoverse-v1"), ("", "armv8-a")])
def test_an_aarch64_machine_is_named_by_its_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cpuinfo: str, name: str
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(cpuinfo)
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(cpu, "host_cpuinfo", lambda: host_cpuinfo(path))
    host = get_target("cpu")
    assert (host.text, host.machine) == (f"cpu:{name}", "aarch64")
    assert (host.facts.vector_bits, host.facts.vector_registers, host.features) == (128, 32, ())
    assert get_target(host.text).facts.fma_per_cycle == host.facts.fma_per_cycle
