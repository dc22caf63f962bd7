"""`just gpu-lint`: its bars, and its golden table, of which the smallest network is looked at here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from compiler.core.device_code import LoopCode, MachineCode, Occupancy
from compiler.reports import ResourceInfo
from compiler.verify.access_report import AccessRow, LaunchAccess

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lint(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The command's module."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return import_module("gpu_lint")


@pytest.fixture
def kernels(lint: Any) -> Any:
    """The module of what it measures."""
    return import_module("gpu_kernels")


def _code(*, spills: int = 0, divisions: int = 0, microseconds: float = 1.0) -> ResourceInfo:
    inner = LoopCode("", 1, True, 10, {}, divisions, spills, 4)
    room = Occupancy(4, 16, 0.25, "registers")
    code = MachineCode(
        20, divisions, spills, room, (inner,), {}, 1, True, 1.0, (), microseconds, limited_by="fma"
    )
    return ResourceInfo("sm_90", 40, 0, 0, 0, code, 0.5)


def _launch(
    name: str, blocks: int, least: float, units: float, ways: int, *, inner: bool = True
) -> LaunchAccess:
    load = AccessRow(1, "", "load", 4, units / 4, units * 8, units, least, 4, innermost=True)
    shared = AccessRow(2, "", "shared load", 4, 10, 320, 10.0 * ways, 10, ways, innermost=inner)
    return LaunchAccess(0, name, (blocks, 1, 1), (128, 1, 1), 1, 8, 32, 1.0, 0, (load, shared))


def test_bars(kernels: Any) -> None:
    def linted(launch: LaunchAccess, work: float = 1e9, resource: ResourceInfo | None = None) -> Any:
        return kernels.Linted(launch, 1, 132, work, resource)

    good = linted(_launch("good", 132, 950, 1000, 2))
    assert kernels.findings([good]) == []
    little = linted(_launch("little", 132, 10, 50, 1))  # 4.8 % of the bytes
    assert kernels.findings([good, little]) == []
    more = linted(_launch("more", 132, 10, 60, 1))  # 5.7 %
    (found,) = kernels.findings([good, more])
    assert found == (
        "fetches: launches with 90 % of ideal sectors fetch 94 % of the bytes, not 95 %: more (17%)"
    )
    (found,) = kernels.findings([linted(_launch("ways", 132, 1, 1, 4))])
    assert found == "bank conflicts in innermost loops: ways (4 ways)"
    assert kernels.findings([linted(_launch("ways", 132, 1, 1, 4, inner=False))]) == []
    (found,) = kernels.findings([linted(_launch("grid", 98, 1, 1, 1))])
    assert found == "grids smaller than 132 units: grid (98 blocks)"
    assert kernels.findings([linted(_launch("grid", 98, 1, 1, 1), 98 * 4096)]) == []
    good = linted(_launch("code", 132, 1, 1, 1), resource=_code())
    assert kernels.findings([good]) == []
    bad = linted(_launch("code", 132, 1, 1, 1), resource=_code(spills=2, divisions=3))
    assert kernels.findings([bad]) == [
        "registers spilled: code (2)",
        "divisions in innermost loops: code (3)",
    ]


def test_a_network_has_a_row(lint: Any, kernels: Any, tmp_path: Path) -> None:
    one = kernels.Linted(_launch("tk_k0_0", 132, 900, 1000, 2), 1, 132, 1e9, _code(microseconds=2.0))
    two = kernels.Linted(_launch("tk_k0_1", 98, 100, 1000, 4), 1, 132, 1e9, _code(divisions=1))
    network = kernels.Network("n", (one, two))
    row = dict(zip(kernels.SUMMARY, kernels.summary_row(network), strict=True))
    assert row == {
        "network": "n",
        "ideal sectors": "50 %",
        "worst conflict": "4",
        "waits behind products": "-",
        "occupancy": "25 %",
        "spills": "0 of 2",
        "inner divisions": "1 of 2",
        "small grids": "1 of 2",
        "predicted us": "3",
        "least us": "0",
    }
    lint.write_summary(tmp_path / "s.md", {"cuda:sm_90": [network, kernels.Network("none", (), unread="so")]})
    assert (tmp_path / "s.md").read_text().splitlines()[-1].startswith("| none | - |")


def test_a_change_is_shown_until_it_is_written_down(
    lint: Any, kernels: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "cuda:sm_90"
    blocks = [132]

    def checked(*, keep: bool = False, network: str = "n") -> bool:
        launches = (kernels.Linted(_launch("tk_k0_0", blocks[0], 1, 1, 1), 1, 132, 1e9),)
        found: bool = lint.check(kernels.Network(network, launches), target, keep=keep, golden=tmp_path)
        return found

    assert not checked()
    assert checked(keep=True)
    assert checked(keep=True, network="m")
    assert checked()
    capsys.readouterr()
    blocks[0] = 264
    assert not checked()
    shown = capsys.readouterr().out
    assert "-n tk_k0_0 calls=1 grid=132x1x1" in shown
    assert "+n tk_k0_0 calls=1 grid=264x1x1" in shown
    assert checked(keep=True)
    lines = (tmp_path / "sm_90.txt").read_text().splitlines()
    assert [line.split()[0] for line in lines] == ["m", "n"]
    assert "grid=264x1x1" in lines[1]


def test_machine_code_is_compared_with_that_of_the_same_compiler(
    lint: Any, kernels: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def checked(toolchain: str, divisions: int, *, keep: bool = False) -> bool:
        launch = kernels.Linted(_launch("tk_k0_0", 132, 1, 1, 1), 1, 132, 1e9, _code(microseconds=divisions))
        network = kernels.Network("n", (launch,), toolchain=toolchain)
        found: bool = lint.check(network, "cuda:sm_90", keep=keep, golden=tmp_path)
        return found

    assert checked("NVRTC 1", 1, keep=True)
    assert checked("NVRTC 1", 1)
    assert not checked("NVRTC 1", 2)
    assert "+n tk_k0_0 registers=40 occupancy=25% spills=0 inner-divisions=0 us=2.00 by=fma" in (
        capsys.readouterr().out
    )
    assert checked("NVRTC 2", 2)
    assert "not compared: the golden table is of NVRTC 1, this of NVRTC 2" in capsys.readouterr().out


def test_the_smallest_network_is_as_the_golden_table_has_it(lint: Any, kernels: Any, tmp_path: Path) -> None:
    found = kernels.lint("mnist", "cuda:sm_90", tmp_path, code=False)
    assert found.unread
    lines = kernels.lines_of("mnist", found.launches)
    assert lines == lint.golden_lines(lint.golden_path("cuda:sm_90"), "mnist"), "bin/just gpu-lint --update"
