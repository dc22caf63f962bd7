"""`tk matrix` in containers of a real image: trials are verified there, and limits hold inside."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.command import Result
from tests.support.engine import TestEngine
from tests.support.images import cpu_image

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("images")]

Tk = Callable[..., Result]
_LARGE = 150_000_000  # elements, 600 MB


def _large_output(path: Path) -> None:
    """A model that compiles to little, and whose output does not fit into the memory of its container."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [_LARGE])
    dims = helper.make_tensor("dims", TensorProto.INT64, [1], [_LARGE])
    graph = helper.make_graph([helper.make_node("Expand", ["x", "dims"], ["y"])], "g", [x], [y], [dims])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.mark.parametrize("name", ["docker_engine", "podman_engine"])
def test_trials_in_an_image(name: str, request: pytest.FixtureRequest, tmp_path: Path, tk: Tk) -> None:
    engine: TestEngine = request.getfixturevalue(name)
    image = cpu_image(engine)
    _large_output(tmp_path / "large.onnx")

    def run(*words: object) -> tuple[dict[str, object], str, str]:
        place = ("--target", "cpu", "--image", image, "--docker-host", engine.url, "--records", "records")
        done = tk("matrix", "run", *words, *place, "--json", timeout=1800)
        (cell,) = done.json["cells"]
        assert cell["place"]["worker"] == engine.url
        return cell["place"], cell["state"], cell["why"]

    place, state, why = run("--network", "mnist", "--do", "compile,verify,bench", "--bench-seconds", "0.2")
    assert (state, place["image"]) == ("verified", image), why
    assert tk("matrix", "show", "mnist", "--records", "records", "--json").json[0]["latency"]["p50_ms"] > 0
    _, state, why = run("--file", "large.onnx", "--memory", "500 MB")
    assert (state, "tk verify" in why, "the limit is 500,000,000" in why) == ("out-of-memory", True, True), (
        why
    )
    _, state, why = run("--file", "large.onnx", "--do", "compile", "--disk", "20 KB")
    assert (state, "in the container wrote more than it may" in why) == ("out-of-disk", True), why
