"""`just gpu-lint`: its bars, and its golden table, of which the smallest network is looked at here."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from compiler.verify.access_report import AccessRow, LaunchAccess

ROOT = Path(__file__).parents[2]


@pytest.fixture
def lint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The module, with its models in a folder of the test."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    module = import_module("gpu_lint")
    monkeypatch.setattr(module, "WORK", tmp_path)
    return module


def _launch(
    name: str, blocks: int, least: float, units: float, ways: int, *, inner: bool = True
) -> LaunchAccess:
    load = AccessRow(1, "", "load", 4, units / 4, units * 8, units, least, 4, innermost=True)
    shared = AccessRow(2, "", "shared load", 4, 10, 320, 10.0 * ways, 10, ways, innermost=inner)
    return LaunchAccess(0, name, (blocks, 1, 1), (128, 1, 1), 1, 8, 32, 1.0, 0, (load, shared))


def test_bars(lint: Any) -> None:
    def linted(launch: LaunchAccess, work: float = 1e9) -> Any:
        return lint.Linted(launch, 1, 132, work)

    good = linted(_launch("good", 132, 950, 1000, 2))
    assert lint.findings([good]) == []
    little = linted(_launch("little", 132, 10, 50, 1))  # 4.8 % of the bytes
    assert lint.findings([good, little]) == []
    more = linted(_launch("more", 132, 10, 60, 1))  # 5.7 %
    (found,) = lint.findings([good, more])
    assert found == (
        "fetches: launches with 90 % of ideal sectors fetch 94 % of the bytes, not 95 %: more (17%)"
    )
    (found,) = lint.findings([linted(_launch("ways", 132, 1, 1, 4))])
    assert found == "bank conflicts in innermost loops: ways (4 ways)"
    assert lint.findings([linted(_launch("ways", 132, 1, 1, 4, inner=False))]) == []
    (found,) = lint.findings([linted(_launch("grid", 98, 1, 1, 1))])
    assert found == "grids smaller than 132 units: grid (98 blocks)"
    assert lint.findings([linted(_launch("grid", 98, 1, 1, 1), 98 * 4096)]) == []


def test_a_change_is_shown_until_it_is_written_down(
    lint: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "cuda:sm_90"
    blocks = [132]

    def measured(*_: object) -> list[Any]:
        return [lint.Linted(_launch("tk_k0_0", blocks[0], 1, 1, 1), 1, 132, 1e9)]

    monkeypatch.setattr(lint, "lint", measured)

    def checked(*, keep: bool = False, network: str = "n") -> bool:
        found: bool = lint.check(network, target, tmp_path, keep=keep, golden=tmp_path)
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


def test_the_smallest_network_is_as_the_golden_table_has_it(lint: Any, tmp_path: Path) -> None:
    found = lint.lines_of("mnist", lint.lint("mnist", "cuda:sm_90", tmp_path))
    assert found == lint.golden_lines(lint.golden_path("cuda:sm_90"), "mnist"), "bin/just gpu-lint --update"
