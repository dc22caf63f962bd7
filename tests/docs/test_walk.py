"""The walk through one convolution (docs/convolution.md) names and shows what is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import compiler
from tests.support.command import ROOT
from toolchain import zoo

TEXT = (ROOT / "docs" / "convolution.md").read_text()
PROSE = re.sub(r"^```.*?^```", "", TEXT, flags=re.DOTALL | re.MULTILINE)
NAMES = sorted(set(re.findall(r"`([\w/]+\.py)::(\w+)`", PROSE)))
FILES = sorted(set(re.findall(r"`([\w/]+/[\w.]*)(?:::\w+)?`", PROSE)) - {"compiler/"})
SHOWN = re.findall(r"^```text (\S+)\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def found(name: str) -> Path:
    below = ROOT / "compiler" / name
    return below if below.exists() else ROOT / name


@pytest.mark.parametrize(("file", "name"), NAMES)
def test_the_name_is_defined_there(file: str, name: str) -> None:
    defined = set()
    for item in ast.parse(found(file).read_text()).body:
        if isinstance(item, ast.ClassDef | ast.FunctionDef):
            defined.add(item.name)
        if isinstance(item, ast.Assign | ast.AnnAssign):
            targets = item.targets if isinstance(item, ast.Assign) else [item.target]
            defined |= {one.id for one in targets if isinstance(one, ast.Name)}
    assert name in defined


def test_the_files_exist() -> None:
    assert len(FILES) > 30
    assert [name for name in FILES if not found(name).exists()] == []


def test_the_stages_show_what_is_shown(tmp_path: Path) -> None:
    model, dump = tmp_path / "mnist.onnx", tmp_path / "dump"
    zoo.make("mnist", model)
    options = compiler.CompileOptions(output=tmp_path / "out", arch="x86-64-v3", emit="source", dump=dump)
    compiler.compile_model(model, options)
    assert len(SHOWN) > 8
    for file, text in SHOWN:
        lines = iter((dump / file).read_text().splitlines())
        for line in text.splitlines():  # in this order, others between them
            begin = line.removesuffix(" ...")
            same = (one == line or (begin != line and one.startswith(begin)) for one in lines)
            assert any(same), f"{file} has no line {line!r} after the one shown before it"
