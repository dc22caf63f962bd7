"""Libraries for aarch64, cross-compiled and run by QEMU: every op, and networks, against onnxruntime."""

from __future__ import annotations

import platform
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import compiler
from compiler.verify.device import load_anywhere
from tests.support import open_graphs
from tests.support.aarch64 import MACHINE, needs_aarch64
from tests.support.command import Result
from tests.support.merged_cases import assert_computes, merge, merged, typical_first
from tests.support.op_cases import CASES
from tests.support.small_networks import EACH_KIND, small_of_each_kind
from toolchain import zoo
from toolchain.zoo import build, write

ARCH = "armv8-a"
GROUPS = dict(merged(CASES, 24))
pytestmark = needs_aarch64


@pytest.mark.sample(8)
@pytest.mark.parametrize("name", typical_first(GROUPS))
def test_ops(name: str, tmp_path: Path) -> None:
    assert_computes(merge(name, GROUPS[name]), f"cpu:{ARCH}", tmp_path)


@pytest.mark.parametrize(
    "name",
    [
        EACH_KIND,
        *(
            pytest.param(one, marks=pytest.mark.slow)
            for one in ("mnist", "squeezenet", "shufflenet", "mobilenetv2")
        ),
    ],
)
def test_networks(name: str, tmp_path: Path) -> None:
    model, library = tmp_path / "model.onnx", tmp_path / "model.so"
    draft = small_of_each_kind() if name == EACH_KIND else build.draft(zoo.network(name))
    write.write_model(draft, model)
    compiler.compile_model(model, compiler.CompileOptions(output=library, arch=f"{ARCH}+neoverse-n1"))
    verified = compiler.verify_library(compiler.VerifyRequest(library, model, threads=2, runs=1))
    assert verified.passed, verified.outputs
    assert verified.reference.startswith("onnxruntime")
    assert [
        one.index for one in compiler.inspect_library(library, check=True).kernels if not one.replays
    ] == []


@pytest.mark.skipif(platform.machine() == MACHINE, reason="this machine runs such libraries itself")
def test_a_library_of_another_processor_is_verified_and_else_refused(
    tk: Callable[..., Result], tmp_path: Path
) -> None:
    assert tk("zoo", "make", "mnist", "-o", tmp_path / "mnist.onnx").code == 0
    assert tk("compile", tmp_path / "mnist.onnx", "--arch", ARCH, "-o", tmp_path / "arm.so").code == 0
    done = tk("verify", tmp_path / "arm.so", "--model", tmp_path / "mnist.onnx", "--layers", "--runs", 1)
    assert done.code == 0, done.err
    assert "on aarch64, emulated by qemu-aarch64" in done.out
    done = tk("run", tmp_path / "arm.so")
    assert done.code == 4
    assert f"this library is for aarch64, and this machine is {platform.machine()}" in done.err
    done = tk("verify", tmp_path / "arm.so", "--model", tmp_path / "mnist.onnx", env={"PATH": str(tmp_path)})
    assert done.code == 4
    assert "apt install qemu-user" in done.err


def test_sizes_of_every_run(tmp_path: Path) -> None:
    """A graph with symbols: what the inputs decide, the program is told."""
    graph = open_graphs.everything()
    with load_anywhere(open_graphs.compiled(graph, tmp_path / "m.so", f"cpu:{ARCH}")) as model:
        for values in ((7, 5), (3, 2)):
            feeds = open_graphs.feeds_of(graph, values)
            wanted = open_graphs.everything_wanted(feeds)
            got = model.context(1).run(feeds)
            assert got.keys() == wanted.keys()
            for name, array in wanted.items():
                np.testing.assert_array_equal(got[name], array, err_msg=name)
