"""With TK_DEBUG=1 the program is verified after every pass, of the graph and of every kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from compiler import compile_model, pipeline
from compiler.core.diagnostics import InternalError
from compiler.graph.ir import Graph
from compiler.graph.rewrites import PASSES as REWRITES
from compiler.lower import PASSES
from compiler.reports import CompileOptions
from toolchain import zoo

SMALL = ("mnist", "transformer-encoder")
LARGER = (
    "squeezenet",
    "unet",
    "transformer-encoder-decomposed",
    "shufflenet",
    "mobilenetv2",
    "resnet18-v2",
    "inception_v2",
)


def stopped(model: Path) -> None:
    """Everything up to flat loops; no C++ is compiled."""
    options = CompileOptions(model.with_suffix(".so"), arch="x86-64-v3", stop_after="lower")
    assert compile_model(model, options).path == options.output


@pytest.fixture(scope="module")
def mnist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("debug") / "mnist.onnx"
    zoo.make("mnist", path)
    return path


@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(n, marks=pytest.mark.slow) for n in LARGER)])
def test_every_pass_leaves_a_valid_program(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TK_DEBUG", "1")
    model = tmp_path / "model.onnx"
    zoo.make(name, model)
    stopped(model)


@pytest.mark.parametrize("debug", ["0", "1"])
def test_a_defective_graph_pass_is_found(mnist: Path, monkeypatch: pytest.MonkeyPatch, debug: str) -> None:
    def forgets_a_node(graph: Graph) -> Graph:
        return graph.replace(nodes=graph.nodes[1:])

    monkeypatch.setenv("TK_DEBUG", debug)
    last = REWRITES[-1]
    broken = (*REWRITES[:-1], type(last)(last.name, forgets_a_node))
    monkeypatch.setattr("compiler.graph.rewrites.PASSES", broken)
    monkeypatch.setattr(pipeline, "choose_graph", _not_reached)
    with pytest.raises(InternalError if debug == "1" else _ReachedError) as caught:
        stopped(mnist)
    if debug == "1":
        assert f"in pass {last.name}" in caught.value.__notes__


class _ReachedError(Exception):
    pass


def _not_reached(graph: Graph, job: object) -> None:
    raise _ReachedError


def test_a_defective_lowering_pass_is_found(mnist: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TK_DEBUG", "1")
    without_blocks = tuple(item for item in PASSES if item[0] != "lower_blocks")
    monkeypatch.setattr("compiler.lower.PASSES", without_blocks)
    with pytest.raises(InternalError, match="loop program"):
        stopped(mnist)
