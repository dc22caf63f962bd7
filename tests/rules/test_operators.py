"""Operators are data: their names stand in their records, and a new one is one record."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from compiler.graph.ops import OPS, onnx_names
from tests.support.command import environment
from tests.support.onnx_models import model
from tests.support.sources import ROOT, Source, violations

NAMES = {*OPS, *(name for _, name in onnx_names())}
THEIR_PLACES = ("compiler/graph/ops/", "compiler/graph/rewrites/", "compiler/frontend/")
# (file, word) -> what the word is there, if not an operator of the graph
OTHER_MEANINGS = {
    ("compiler/loops/ir.py", "Cast"): "a node of the loop IR",
    ("compiler/schedule/__init__.py", "Cast"): "the same",
    ("compiler/targets/nvrtc.py", "Size"): "a part of the name of a function in NVIDIA's library",
}
# file -> why it names operators all the same
EXCEPTIONS = {
    "compiler/verify/tolerance.py": "reads the model as ONNX writes it: what is checked must not decide how",
    "compiler/verify/selections.py": "reads the model as ONNX writes it, to give the reference parts",
}

FICTITIOUS = """
OPS = (*OPS, Op(
    "Beads", Kind.INJECTIVE, CONCAT.infer, CONCAT.reference, (1, None), (Signature(1, {"axis": 0}),),
    domain="abacus", forms=CONCAT.forms, reads_once=everywhere, concatenates=True,
))
"""


def names_an_operator(source: Source) -> Iterator[str]:
    """Strings that are an operator's name, and questions to the beginning or end of one."""
    if source.path.startswith(THEIR_PLACES) or source.path in EXCEPTIONS:
        return
    for node in source.nodes():
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in NAMES:
            if (source.path, node.value) not in OTHER_MEANINGS:
                yield f"line {node.lineno}: names the operator {node.value}; ask its record"
        elif isinstance(node, ast.Attribute) and ast.unparse(node).endswith(
            ("op.name.startswith", "op.name.endswith")
        ):
            yield f"line {node.lineno}: asks for a part of an operator's name; ask its record"


def test_no_operator_is_named_outside_its_record() -> None:
    assert violations(names_an_operator, "compiler") == []


@pytest.mark.parametrize(
    "text", ['if node.op.name == "Conv": pass', 'X = {"Pad"}', 'ok = anchor.op.name.startswith("Reduce")']
)
def test_the_rule_can_fail(text: str) -> None:
    assert list(names_an_operator(Source("compiler/graph/fuse.py", text)))
    assert not list(names_an_operator(Source("compiler/graph/ops/linear.py", text)))


def test_exceptions_are_needed() -> None:
    gone = [(path, word) for path, word in OTHER_MEANINGS if word not in (ROOT / path).read_text()]
    assert gone == []
    assert all(list(_named(Path(path))) for path in EXCEPTIONS)


def _named(path: Path) -> Iterator[str]:
    return names_an_operator(Source("compiler/x.py", (ROOT / path).read_text()))


def test_a_new_operator_is_one_record(tmp_path: Path) -> None:
    """A copy of the compiler with a record more reads it, fuses it, and writes its operands in place."""
    shutil.copytree(ROOT / "compiler", tmp_path / "compiler", ignore=shutil.ignore_patterns("__pycache__"))
    family = tmp_path / "compiler" / "graph" / "ops" / "indexing.py"
    family.write_text(family.read_text() + FICTITIOUS)
    nodes = [
        helper.make_node("Softmax", ["x"], ["a"]),
        helper.make_node("Softmax", ["y"], ["b"]),
        helper.make_node("Beads", ["a", "b"], ["c"], domain="abacus"),
        helper.make_node("Beads", ["c", "y"], ["z"], domain="abacus"),
    ]
    inputs = {"x": np.zeros((2, 3), np.float32), "y": np.zeros((4, 3), np.float32)}
    imports = [helper.make_opsetid("abacus", 1)]
    onnx.save(model(nodes, inputs, ["z"], imports=imports), tmp_path / "m.onnx")
    program = (
        "import compiler\nfrom pathlib import Path\n"
        "made = compiler.CompileOptions(Path('out'), emit='source', dump=Path('dump'))\n"
        "print(compiler.compile_model(Path('m.onnx'), made).kernels)\n"
    )
    env = environment({"PYTHONPATH": str(tmp_path), "TK_CACHE_DIR": str(tmp_path / "cache")})
    argv = [sys.executable, "-P", "-c", program]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.stdout == "3\n", done.stderr
    kernels = (tmp_path / "dump" / "22-kernels.txt").read_text()
    assert kernels.count("Beads") == 1, "the first is in place, the second copies an input of the model"
