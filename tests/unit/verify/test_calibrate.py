"""This machine beside its row: what is measured, when it is off, and how that is told."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import compiler
from compiler.verify import calibrate
from compiler.verify.calibrate import Calibration, Fact
from tests.support.command import Result
from toolchain.commands.doctor import show_calibration


def calibration(measured: float, busy: float = 0.0) -> Calibration:
    facts = (Fact("clock", "GHz", 3.0, 3.0), Fact("L2 read", "bytes a cycle", 30.0, measured))
    return Calibration("x86-64-v3+zen3", "zen3", facts, busy)


@pytest.mark.parametrize(
    ("measured", "off", "holds"), [(30, 0, True), (39, 0.3, True), (20, 0.5, False), (45, 0.5, False)]
)
def test_a_fact_is_off_both_ways(measured: float, off: float, holds: bool) -> None:
    found = calibration(measured)
    assert found.facts[1].off == pytest.approx(off)
    assert (found.facts[1].holds, found.holds) == (holds, holds)


def test_what_is_off_and_a_busy_machine_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    show_calibration(calibration(20, busy=2.0))
    told = capsys.readouterr()
    lines = {line.partition("  ")[0]: line for line in told.out.splitlines()}
    assert "50 %" in lines["L2 read"]
    assert "OFF" in lines["L2 read"]
    assert "OFF" not in lines["clock"]
    assert "busy (2.0 programs at once)" in told.err
    show_calibration(calibration(30))
    assert "busy" not in capsys.readouterr().err


def test_this_machine_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibrate, "_SECONDS", 0.02)
    told: list[tuple[str, float, float]] = []
    found = compiler.calibrate(progress=lambda *state: told.append(state))
    facts = {f"{one.name} {one.unit}": one.measured for one in found.facts}
    bits = calibrate.get_target().facts.vector_bits
    assert 0.5 < facts["clock GHz"] < 8
    assert 1.5 < facts["multiply-add latency cycles"] < 12
    assert 0.2 < facts[f"multiply-adds {bits} bit, a cycle"] < 4.5
    assert facts["L3 read bytes a cycle"] < facts[f"loads {bits} bit, a cycle"] * bits / 8
    assert told[-1][1] == told[-1][2] == len(found.facts)


def test_the_command_says_by_its_exit_code_whether_facts_hold(tk: Callable[..., Result]) -> None:
    done = tk("doctor", "--calibrate", "--json")
    assert done.code == (0 if done.json["holds"] else 1)
    assert done.json["arch"] == calibrate.get_target().text.partition(":")[2]
    assert {"name", "unit", "row", "measured", "off", "holds"} == set(done.json["facts"][0])
