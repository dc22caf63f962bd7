"""Every network of the zoo compiles, replays and verifies, at one and at two threads; small ones at two."""

from __future__ import annotations

from pathlib import Path

import pytest

import compiler
from tests.support.small_networks import EACH_KIND, SMALL_BUILT, kinds_of
from toolchain import zoo
from toolchain.zoo import build, write
from toolchain.zoo.builder import Draft

LEFT_OUT = {"perceptron-2gb"}
"""Larger than one protobuf message: tests/e2e/test_library_file.py has it."""
SMALL = {
    *SMALL_BUILT, "mnist", "squeezenet",
    "transformer-encoder",
}  # fmt: skip
"""Quick enough for every run of the tests; together they have every kind of kernel."""
MOST_ERROR = 1e-4
MOST_BESIDE_CONSTANTS = 2_000_000

NETWORKS = [
    pytest.param(name, marks=[] if name in SMALL else [pytest.mark.slow])
    for name in (*SMALL_BUILT, *zoo.networks())
    if name not in LEFT_OUT
]


def draft(name: str) -> Draft:
    return SMALL_BUILT[name]() if name in SMALL_BUILT else build.draft(zoo.network(name))


@pytest.mark.parametrize("name", NETWORKS)
def test_network(name: str, tmp_path: Path) -> None:
    model, library = tmp_path / f"{name}.onnx", tmp_path / f"{name}.so"
    write.write_model(draft(name), model)
    report = compiler.compile_model(model, compiler.CompileOptions(output=library))
    assert report.library_bytes <= report.constant_bytes + MOST_BESIDE_CONSTANTS
    for threads in (2,) if name in SMALL_BUILT and name != EACH_KIND else (1, 2):
        verified = compiler.verify_library(compiler.VerifyRequest(library, model, threads=threads, runs=1))
        assert verified.passed, verified.outputs
        assert verified.needed <= MOST_ERROR
        assert verified.reference.startswith("onnxruntime")
    kernels = compiler.inspect_library(library, check=True).kernels
    assert [one.index for one in kernels if not one.replays] == []
    assert "opaque" not in {one.kind for one in kernels}
    model.unlink()
    library.unlink()


def test_the_small_networks_exist() -> None:
    assert {*SMALL_BUILT, *zoo.networks()} >= SMALL | LEFT_OUT


def test_the_small_networks_have_every_kind_of_kernel() -> None:
    kinds = {name: {*kinds_of(draft(name))} for name in (*SMALL_BUILT, *zoo.networks())}
    often = set().union(*(kinds[name] for name in SMALL))
    rare = {(kind, name) for name, some in kinds.items() for kind in some - often}
    assert not rare
