"""docs/schedules.md: its code runs and prints what is shown, its words exist, its plugins do what it says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import compiler.plugin
import compiler.schedule
from compiler.schedule.primitives import PRIMITIVES
from compiler.schedule.schedule import Schedule
from tests.support import command
from tests.support.command import ROOT, environment

PAGE = (ROOT / "docs" / "schedules.md").read_text()
EXAMPLE = (ROOT / "examples" / "product_by_hand.py").read_text()
BLOCKS = re.findall(r"^```(python|text)\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
MARK = "=== the next block"
SEEDS = [
    "placeholder", "compute", "reduce_axis", "sum", "scan", "extern", "split", "nparts", "tile", "fuse",
    "reorder", "parallel", "vectorize", "unroll", "bind", "vthread", "compute_at", "reverse_compute_at",
    "index", "preserve_unit_loops", "compute_root", "compute_inline", "reverse_compute_inline",
    "cache_read", "cache_write", "set_scope", "storage_align", "transform_layout",
    "transform_block_layout", "rfactor", "decompose_reduction", "blockize", "tensorize", "annotate",
    "unannotate", "sample_perfect_tile", "sample_categorical", "sample_compute_location",
    "enter_postproc", "get_loops", "get_block", "lower", "build", "get_source",
    "pragma_unroll_explicit",
]  # fmt: skip
"""What the documents that this project was made from call the parts of a schedule language."""


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What each block of Python prints, all of them run as one program."""
    parts = [
        text.replace("from __future__ import annotations\n", "") for kind, text in BLOCKS if kind == "python"
    ]
    code = f"\nprint({MARK!r})\n".join(parts)
    folder = tmp_path_factory.mktemp("page")
    argv = [sys.executable, "-c", code]
    done = subprocess.run(argv, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert command.tk("inspect", "scaled.so", cwd=folder).code == 0
    return done.stdout.split(f"{MARK}\n")


def test_the_code_prints_what_is_shown(printed: list[str]) -> None:
    number, shown = -1, 0
    for kind, text in BLOCKS:
        if kind == "python":
            number += 1
        else:
            shown += 1
            assert printed[number].rstrip() == text.rstrip()
    assert number >= 15
    assert shown >= 2


def test_the_steps_are_those_of_the_example() -> None:
    steps = [
        part.strip()
        for kind, text in BLOCKS
        if kind == "python" and "PLUGIN" not in text
        for part in re.findall(r"^def .*?(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    ]
    assert len(steps) == 7
    assert [step for step in steps if step not in EXAMPLE] == []


# ---------------------------------------------------------------- the words


def rows() -> list[list[str]]:
    table = PAGE.partition("## The words of others\n")[2].partition("\n\n`index=-1`")[0]
    return [
        line.strip("|").split("|")
        for line in table.splitlines()
        if re.match(r"\| (?!Halide)[^-]|\| \|", line)
    ]


def test_every_word_of_our_column_is_there() -> None:
    homes = {name: getattr(compiler.schedule, name) for name in dir(compiler.schedule) if name[0] != "_"}
    homes["ScheduleRule"] = compiler.plugin.ScheduleRule
    words = {word for row in rows() for word in re.findall(r"`([\w.]+)`", row[3])}
    assert len(words) > 50
    missing = []
    for word in sorted(words):
        owner, _, name = word.rpartition(".")
        known = {*dir(homes[owner]), *homes[owner].__annotations__} if owner else homes
        missing += [] if name in known else [word]
    assert missing == []


def test_every_primitive_has_a_row() -> None:
    words = {word for row in rows() for word in re.findall(r"`Schedule\.(\w+)`", row[3])}
    methods = {name for name in PRIMITIVES if hasattr(Schedule, name)}
    assert methods == PRIMITIVES.keys()
    assert methods - words == set()


@pytest.mark.parametrize("word", SEEDS)
def test_the_seeds_words_have_a_row(word: str) -> None:
    said = " ".join(cell for row in rows() for cell in row[:3])
    assert re.search(rf"\b{word}\b", said), word


# ---------------------------------------------------------------- plugins


def test_the_shown_plugin_is_the_example() -> None:
    (shown,) = [text for kind, text in BLOCKS if kind == "python" and "PLUGIN =" in text]
    assert shown == (ROOT / "examples" / "plugins" / "rows_rule.py").read_text()


def test_plugins_are_code_to_security() -> None:
    assert re.search(r"^\| plugins.*\*\*code\*\*", (ROOT / "SECURITY.md").read_text(), re.MULTILINE)
    assert Path(ROOT / "examples" / "plugins").is_dir()
