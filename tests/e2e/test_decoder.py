"""Decoders that keep keys and values of what was: 64 tokens, each the likeliest; oracle: onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import compiler
from compiler import CompileOptions, SizeRange, SpecialisedSizes, UsageError
from compiler.core.process import run
from tests.support.emulated_models import text_only
from tests.support.sized_models import Array
from toolchain import zoo
from toolchain.zoo.llama import llama
from toolchain.zoo.write import write_model

ROOT = Path(__file__).parents[2]
PROMPT, STEPS = (7, 3, 41, 12, 5), 64
Step = Callable[[Mapping[str, Array]], Sequence[Array]]
Made = tuple[onnx.ModelProto, "Arrays", compiler.Model]


def small_llama(path: Path, layers: int = 2) -> None:
    draft = llama("small", 4.0, layers=layers, heads=4, shared=2, depth=16, hidden=48, words=50)
    write_model(draft, path)


MODELS: Mapping[str, Callable[[Path], object]] = {
    "llama": small_llama,
    "tiny-llama-cache": lambda path: zoo.make("tiny-llama-cache", path),
}


class Arrays:
    """Caches go in and come out: `step` gives the outputs for inputs."""

    def __init__(self, model: onnx.ModelProto, step: Step) -> None:
        graph = model.graph
        self.step = step
        self.caches = {
            one.name: [dim.dim_value for dim in one.type.tensor_type.shape.dim]
            for one in graph.input
            if one.name.startswith("past")
        }
        ranks = [len(one.type.tensor_type.shape.dim) for one in graph.output]
        self.logits, self.kept = ranks.index(3), dict[str, Array]()

    def reset(self) -> None:
        self.kept = {
            name: np.zeros((1, heads, 0, depth), np.float32)
            for name, (_, heads, _, depth) in self.caches.items()
        }

    def __call__(self, given: Mapping[str, Array]) -> Array:
        made = list(self.step({**given, **self.kept}))
        logits = made.pop(self.logits)
        self.kept = dict(zip(self.kept, made, strict=True))
        return logits


class InPlace:
    """A context keeps the caches."""

    def __init__(self, context: compiler.Context) -> None:
        self.context = context

    def reset(self) -> None:
        self.context.reset()

    def __call__(self, given: Mapping[str, Array]) -> Array:
        (logits,) = self.context.run(given).values()
        return logits


def given_for(ids: Sequence[int], before: int) -> dict[str, Array]:
    total = before + len(ids)
    return {
        "input_ids": np.array([ids]),
        "attention_mask": np.ones((1, total), np.int64),
        "position_ids": np.arange(before, total)[None],
    }


def generate(decoder: Arrays | InPlace, prompt: Sequence[int] = PROMPT, steps: int = STEPS) -> list[int]:
    """The tokens behind the prompt."""
    decoder.reset()
    ids, count, tokens = list(prompt), 0, list[int]()
    while len(tokens) < steps:
        logits = decoder(given_for(ids, count))
        tokens.append(int(logits[0, -1].argmax()))
        ids, count = tokens[-1:], count + len(ids)
    return tokens


@pytest.fixture(scope="module", params=["llama", pytest.param("tiny-llama-cache", marks=pytest.mark.slow)])
def decoder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Made]:
    path = tmp_path_factory.mktemp("decoder") / "m.onnx"
    MODELS[request.param](path)
    options = CompileOptions(output=path.with_suffix(".so"), target="cpu")
    compiler.compile_model(path, options)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    proto = onnx.load(path)
    with compiler.load(options.output) as model:
        yield proto, Arrays(proto, lambda given: session.run(None, dict(given))), model


def test_the_same_tokens_as_onnxruntime(decoder: Made) -> None:
    proto, reference, model = decoder
    expected = generate(reference)
    assert len(set(expected)) > 5, "the same word for ever shows nothing"
    for threads in (1, 2):
        with model.context(threads) as context:
            assert generate(Arrays(proto, lambda given: list(context.run(given).values()))) == expected
            assert generate(InPlace(context)) == expected


def test_states_move_between_specialisations(tmp_path: Path) -> None:
    """The prompt by the general plan, tokens by one of their own, and guesses by the general one again."""
    path, library = tmp_path / "m.onnx", tmp_path / "m.so"
    small_llama(path, layers=1)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    expected = generate(Arrays(onnx.load(path), lambda given: session.run(None, dict(given))), steps=12)
    sizes = {"tokens": SizeRange(1, 8), "past": SizeRange(0, 24)}
    one = (SpecialisedSizes(dims={"tokens": 1}),)
    options = CompileOptions(output=library, target="cpu", dims=sizes, specialisations=one)
    compiler.compile_model(path, options)
    with compiler.load(library) as model, model.context(1) as context:
        assert generate(InPlace(context), steps=12) == expected
        decoder = InPlace(context)
        decoder.reset()
        found = decoder(given_for(PROMPT, 0))
        for step in range(6):
            assert int(found[0, -1].argmax()) == expected[step]
            decoder(given_for((3, 4, 5), len(PROMPT) + step))
            context.reset(len(PROMPT) + step)
            found = decoder(given_for(expected[step : step + 1], len(PROMPT) + step))
    fixed = (SpecialisedSizes(dims={"past": 4, "tokens": 1}),)
    with pytest.raises(UsageError, match="what the model keeps"):
        compiler.compile_model(path, replace(options, specialisations=fixed))


def test_states_in_place(decoder: Made) -> None:
    """Two texts in two contexts, in turns; what was guessed is taken back; a text that came with its past."""
    _, reference, model = decoder
    first, second = (generate(reference, prompt, 4) for prompt in (PROMPT, (1, 2)))
    reference.reset()
    logits = reference(given_for(PROMPT, 0))
    assert list(model.states) == list(reference.caches)
    with model.context(1) as one, model.context(2) as other:
        found = [InPlace(one)(given_for(PROMPT, 0)), InPlace(other)(given_for((1, 2), 0))]
        np.testing.assert_allclose(found[0], logits, rtol=1e-4, atol=1e-5)
        for step in range(3):
            ids = [int(item[0, -1].argmax()) for item in found]
            assert ids == [first[step], second[step]]
            InPlace(one)(given_for((3, 4, 5), len(PROMPT) + step))
            one.reset(len(PROMPT) + step)
            befores = (len(PROMPT) + step, 2 + step)
            found = [
                InPlace(context)(given_for([token], before))
                for context, token, before in zip((one, other), ids, befores, strict=True)
            ]
        made = one.run({**given_for((3,), len(PROMPT)), **reference.kept})
        again = reference(given_for((3,), len(PROMPT)))
        np.testing.assert_allclose(next(v for v in made.values() if v.ndim == 3), again, rtol=1e-4, atol=1e-5)
        assert made.keys() == {item.name for item in model.outputs}, "who gives states gets them"
        name = next(iter(model.states.values()))
        batch, heads, total, depth = made[name].shape
        out = {one: np.zeros((batch, heads, total + 1, depth), np.float32) for one in model.states.values()}
        assert one.run(given_for((4,), total), out=out)[name] is out[name]
        np.testing.assert_array_equal(out[name][:, :, :-1], made[name])


def test_more_than_there_is_room_for(tmp_path: Path) -> None:
    """The dimension and its range are named, and what is kept stays; so it is for what nobody kept."""
    path, library = tmp_path / "m.onnx", tmp_path / "m.so"
    small_llama(path, layers=1)
    dims = {"past": compiler.SizeRange(0, 7), "tokens": compiler.SizeRange(1, 6)}
    compiler.compile_model(path, CompileOptions(output=library, target="cpu", dims=dims))
    with compiler.load(library) as model, model.context(1) as context:
        decode = InPlace(context)
        decode(given_for(PROMPT, 0))
        wanted = decode(given_for((3, 4, 5), 5))
        with pytest.raises(
            compiler.BadInputError, match=r"'past_key_values.0.key'.*'past'.* is 8, expected 0 to 7"
        ):
            decode(given_for((6,), 8))
        context.reset(5)
        np.testing.assert_array_equal(decode(given_for((3, 4, 5), 5)), wanted)
        with pytest.raises(compiler.UsageError, match=r"has 8 places of 'past_key_values.0.key'"):
            context.reset(9)
        with pytest.raises(compiler.BadInputError, match=r"'past_key_values.0.value' is missing"):
            context.run({**given_for((1,), 0), "past_key_values.0.key": np.zeros((1, 2, 0, 16), np.float32)})


def test_on_a_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """States stay in a device's memory; the emulator finds whoever reads what was never written."""
    path, library = tmp_path / "m.onnx", tmp_path / "m.so"
    draft = llama("small", 4.0, layers=1, heads=2, shared=1, depth=4, hidden=8, words=50)
    write_model(draft, path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    reference = Arrays(onnx.load(path), lambda given: session.run(None, dict(given)))
    expected = generate(reference, PROMPT, 4)
    text_only(monkeypatch)
    dims = {"batch": 1, "past": compiler.SizeRange(0, 8), "tokens": compiler.SizeRange(1, 5)}
    compiler.compile_model(path, CompileOptions(output=library, target="cuda-nvidia", dims=dims))
    with compiler.load(library, device="emulator") as model, model.context() as context:
        assert list(model.states) == list(reference.caches)
        assert generate(InPlace(context), PROMPT, 4) == expected
        assert generate(InPlace(context), PROMPT, 4) == expected, "after a reset"


def test_in_c(decoder: Made, tmp_path: Path) -> None:
    """The example, with strict warnings."""
    _, reference, model = decoder
    program, flags = tmp_path / "generate", ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    include = ROOT / "compiler" / "runtime" / "include"
    made = run(["cc", *flags, f"-I{include}", str(ROOT / "examples/generate.c"), "-o", str(program), "-ldl"])
    assert made.returncode == 0, made.stderr
    done = run([str(program), str(model.path), str(STEPS), *map(str, PROMPT)])
    assert (done.returncode, list(map(int, done.stdout.split()))) == (0, generate(reference)), done.stderr
    done = run([str(program), str(model.path), "600", *map(str, PROMPT)])
    assert done.returncode == 1
    assert "'past') is 513, expected 0 to 512" in done.stderr
