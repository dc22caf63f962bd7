"""The oldest compilers of each family that are here: every op, and a network of each kind of kernel.

Promised are g++ 9 and clang 11. Where they are not installed (Debian 11 has both) the next one that is here
stands in.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import compiler
from compiler.core.settings import load_settings
from compiler.targets.toolchain import OLDEST, find_cxx
from tests.support.merged_cases import assert_computes, merge, merged, typical_first
from tests.support.op_cases import CASES
from tests.support.small_networks import small_of_each_kind
from toolchain.zoo import write

NEWEST = {"gcc": 11, "clang": 14}
"""Later ones are what machines have as their own, which all tests use."""
PROGRAMS = {"gcc": "g++", "clang": "clang++"}
GROUPS = dict(merged(CASES, 24))
TARGETS = ("cpu", "cpu:x86-64-v3", "cpu:x86-64")


@pytest.fixture(params=PROGRAMS)
def family(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A family of compilers, whose oldest one compiles in this test."""
    name = str(request.param)
    versions = range(OLDEST[name], NEWEST[name] + 1)
    found = [path for one in versions if (path := shutil.which(f"{PROGRAMS[name]}-{one}"))]
    if not found:
        pytest.skip(f"no {PROGRAMS[name]} from {versions[0]} to {versions[-1]} is installed")
    monkeypatch.setenv("TK_CXX", found[0])
    assert find_cxx(load_settings()).family == name
    return name


@pytest.mark.sample(40, each=("family", "target"))
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", typical_first(GROUPS))
def test_ops(name: str, target: str, family: str, tmp_path: Path) -> None:
    assert_computes(merge(name, GROUPS[name]), target, tmp_path)


@pytest.mark.parametrize(
    "target", [TARGETS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in TARGETS[1:])]
)
def test_a_network_of_each_kind(target: str, family: str, tmp_path: Path) -> None:
    model, library = tmp_path / "model.onnx", tmp_path / "model.so"
    write.write_model(small_of_each_kind(), model)
    compiler.compile_model(model, compiler.CompileOptions(output=library, target=target))
    verified = compiler.verify_library(compiler.VerifyRequest(library, model, threads=2, runs=1))
    assert verified.passed, verified.outputs
