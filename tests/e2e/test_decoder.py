"""Decoders that keep keys and values of what was: 64 tokens, each the likeliest; oracle: onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import compiler
from compiler import CompileOptions
from tests.support.sized_models import Array
from toolchain import zoo
from toolchain.zoo.llama import llama
from toolchain.zoo.write import write_model

PROMPT, STEPS = (7, 3, 41, 12, 5), 64
Step = Callable[[Mapping[str, Array]], Sequence[Array]]


def small_llama(path: Path) -> None:
    draft = llama("small", 4.0, layers=2, heads=4, shared=2, depth=16, hidden=48, words=50)
    write_model(draft, path)


MODELS: Mapping[str, Callable[[Path], object]] = {
    "llama": small_llama,
    "tiny-llama-cache": lambda path: zoo.make("tiny-llama-cache", path),
}


def generate(model: onnx.ModelProto, step: Step) -> list[int]:
    """The tokens behind the prompt; `step` gives the outputs for inputs."""
    caches = [
        (one.name, [dim.dim_value for dim in one.type.tensor_type.shape.dim])
        for one in model.graph.input
        if one.name.startswith("past")
    ]
    kept = {name: np.zeros((1, heads, 0, depth), np.float32) for name, (_, heads, _, depth) in caches}
    logits = next(at for at, one in enumerate(model.graph.output) if len(one.type.tensor_type.shape.dim) == 3)
    ids, count, tokens = np.array([PROMPT]), 0, list[int]()
    while len(tokens) < STEPS:
        total = count + ids.shape[1]
        given = {
            "input_ids": ids,
            "attention_mask": np.ones((1, total), np.int64),
            "position_ids": np.arange(count, total)[None],
        }
        made = list(step({**given, **kept}))
        tokens.append(int(made.pop(logits)[0, -1].argmax()))
        kept = dict(zip(kept, made, strict=True))
        ids, count = np.array([tokens[-1:]]), total
    return tokens


@pytest.mark.parametrize("name", MODELS)
def test_the_same_tokens_as_onnxruntime(name: str, tmp_path: Path) -> None:
    path, library = tmp_path / "m.onnx", tmp_path / "m.so"
    MODELS[name](path)
    proto = onnx.load(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = generate(proto, lambda given: session.run(None, dict(given)))
    assert len(set(expected)) > 5, "the same word for ever shows nothing"
    compiler.compile_model(path, CompileOptions(output=library, target="cpu"))
    with compiler.load(library) as model:
        for threads in (1, 2):
            with model.context(threads) as context:
                found = generate(proto, lambda given: list(context.run(given).values()))
                assert found == expected
