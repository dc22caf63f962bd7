"""Faults for our own compiler can be planted; the whole hunt is `bin/just fuzz-mutants`."""

from __future__ import annotations

from pathlib import Path

from tests.fuzz.mutants import MUTANTS

COMPILER = Path(__file__).resolve().parents[2] / "compiler"


def test_forty_lines_stand_once_in_their_files() -> None:
    texts = {one: (COMPILER / one.file).read_text() for one in MUTANTS}
    assert [one.name for one, text in texts.items() if text.count(one.before) != 1] == []
    for one, text in texts.items():
        if one.file.endswith(".py"):
            compile(text.replace(one.before, one.after), one.file, "exec")
    assert len({one.name for one in MUTANTS}) == 40
