"""`tk tune --image`: the search runs in a container, and its library comes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Result
from tests.support.engine import TestEngine
from tests.support.images import cpu_image

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("images")]

Tk = Callable[..., Result]


def test_a_search_in_a_container(docker_engine: TestEngine, tmp_path: Path, tk: Tk) -> None:
    tk("zoo", "make", "mnist", "-o", "mnist.onnx")
    place = ("--image", cpu_image(docker_engine), "--docker-host", docker_engine.url)
    words = ("tune", "mnist.onnx", "--target", "cpu", "--trials", "24", "--json")
    refused = tk(*words, *place, "--report", "page", timeout=1200)
    assert (refused.code, refused.json["error"]["what"]) == (4, "matplotlib is not installed")
    done = tk(*words, *place, timeout=1200)
    assert (done.code, done.json.get("error")) == (0, None), done.err
    assert sum(one["trials"] for one in done.json["kernels"]) == 24, done.json
    assert tk("verify", "mnist.so", "--model", "mnist.onnx", "--json").json["passed"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mnist.onnx", "mnist.so"]
