"""Time per token of decoders that keep keys and values, beside onnxruntime and OpenVINO.

    python benchmarks/decoder.py [--models llama-decoder] [--threads 1 2] [--dims tokens=1..8,past=0..128]

A prompt, then 64 steps of one token each, the likeliest; every engine has to find the same tokens. Engines
take turns, one whole generation each, so a slow moment of a shared machine meets all of them. What counts is
the median of all steps behind the prompt.
"""

from __future__ import annotations

import argparse
import re
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from support import WORK, Array, machine, markdown_table, model_path, save

import compiler
from toolchain.options import pairs, read_dim_range

OURS = "tk"
PROMPT = (7, 3, 41, 12, 5, 9, 30, 2)
STEPS = 64


@dataclass(frozen=True, slots=True)
class Shape:
    """Names and sizes of a decoder with caches: `caches` from each past to its present, both in order."""

    caches: Mapping[str, str]
    heads: int
    depth: int
    logits: str


def shape_of(path: Path) -> Shape:
    """What a model that `optimum` exports, or one spelt alike, has of caches."""
    graph = onnx.load(path, load_external_data=False).graph
    pasts = [one for one in graph.input if one.name.startswith("past")]
    sizes = [dim.dim_value for dim in pasts[0].type.tensor_type.shape.dim]
    presents = [one.name for one in graph.output if len(one.type.tensor_type.shape.dim) == 4]
    logits = next(one.name for one in graph.output if len(one.type.tensor_type.shape.dim) == 3)
    names = [one.name for one in pasts]
    return Shape(dict(zip(names, presents, strict=True)), sizes[1], sizes[3], logits)


class Decoder(ABC):
    """One engine with a decoder: made empty, then told tokens, of which it finds the next one."""

    def __init__(self, shape: Shape, most: int = len(PROMPT)) -> None:
        """`most`: tokens that a step takes."""
        self.shape, self.count, self.most = shape, 0, most

    def generate(self) -> tuple[list[int], list[float]]:
        """The tokens behind the prompt, and the milliseconds of each step behind the prompt's."""
        self.count = 0
        self.reset()
        for start in range(0, len(PROMPT), self.most):
            logits = self.step(self._given(np.array([PROMPT[start : start + self.most]])))
        tokens, times = [int(logits[0, -1].argmax())], list[float]()
        while len(tokens) <= STEPS:
            started = time.perf_counter()
            tokens.append(int(self.step(self._given(np.array([tokens[-1:]])))[0, -1].argmax()))
            times.append((time.perf_counter() - started) * 1e3)
        return tokens, times

    def _given(self, ids: Array) -> dict[str, Array]:
        before, self.count = self.count, self.count + ids.shape[1]
        return {
            "input_ids": ids,
            "attention_mask": np.ones((1, self.count), np.int64),
            "position_ids": np.arange(before, self.count)[None],
        }

    def empty(self) -> dict[str, Array]:
        """A past without tokens."""
        shape = (1, self.shape.heads, 0, self.shape.depth)
        return {name: np.zeros(shape, np.float32) for name in self.shape.caches}

    @abstractmethod
    def reset(self) -> None:
        """Forget what was kept."""

    @abstractmethod
    def step(self, given: Mapping[str, Array]) -> Array:
        """The logits [1, tokens, words] for these inputs and what is kept, which grows by them."""


class _Arrays(Decoder):
    """Caches are numpy arrays that go in and come out: `run` gives the outputs for inputs."""

    def __init__(
        self, shape: Shape, run: Callable[[Mapping[str, Array]], Mapping[str, Array]], most: int = len(PROMPT)
    ) -> None:
        super().__init__(shape, most)
        self.run, self.kept = run, dict[str, Array]()

    def reset(self) -> None:
        self.kept = self.empty()

    def step(self, given: Mapping[str, Array]) -> Array:
        made = self.run({**given, **self.kept})
        self.kept = {past: made[present] for past, present in self.shape.caches.items()}
        return made[self.shape.logits]


class _Kept(Decoder):
    """Our context keeps caches and extends them in place."""

    def __init__(self, shape: Shape, context: compiler.Context, most: int) -> None:
        super().__init__(shape, most)
        self.context = context

    def reset(self) -> None:
        self.context.reset()

    def step(self, given: Mapping[str, Array]) -> Array:
        return self.context.run(given)[self.shape.logits]


class _Bound(Decoder):
    """onnxruntime with its own memory for caches, which no step copies to Python."""

    def __init__(self, shape: Shape, session: Any) -> None:
        super().__init__(shape)
        self.session, self.kept = session, dict[str, Any]()

    def reset(self) -> None:
        from onnxruntime import OrtValue

        self.kept = {name: OrtValue.ortvalue_from_numpy(array) for name, array in self.empty().items()}

    def step(self, given: Mapping[str, Array]) -> Array:
        binding = self.session.io_binding()
        for name, array in given.items():
            binding.bind_cpu_input(name, array)
        for name, value in self.kept.items():
            binding.bind_ortvalue_input(name, value)
        names = [self.shape.logits, *self.shape.caches.values()]
        for name in names:
            binding.bind_output(name)
        self.session.run_with_iobinding(binding)
        made = dict(zip(names, binding.get_outputs(), strict=True))
        self.kept = {past: made[present] for past, present in self.shape.caches.items()}
        return np.asarray(made[self.shape.logits].numpy())


def open_tk(path: Path, shape: Shape, threads: int, dims: str = "", *, copied: bool = False) -> Decoder:
    """Our library; dims: sizes as `tk compile --dim` takes them, with commas between; else the default's.

    copied: caches go in and come out of each run.
    """
    sizes = pairs("--dim", dims.split(","), read_dim_range) if dims else {}
    context = compiler.load(_compiled(path, dims, tuple(sizes.items()))).context(threads)
    most = 1 if sizes.get("tokens") == 1 else len(PROMPT)
    return _Arrays(shape, context.run, most) if copied else _Kept(shape, context, most)


@cache
def _compiled(path: Path, dims: str, sizes: tuple[tuple[str, int | compiler.SizeRange], ...]) -> Path:
    output = path.with_suffix(f".{re.sub('[^a-z0-9]+', '-', dims) or 'default'}.so")
    options = compiler.CompileOptions(output=output, target="cpu", dims=dict(sizes))
    return compiler.compile_model(path, options).path


def _session(path: Path, threads: int) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def open_onnxruntime(path: Path, shape: Shape, threads: int) -> Decoder:
    """Arrays of numpy in and out."""
    session = _session(path, threads)
    names = [one.name for one in session.get_outputs()]
    return _Arrays(shape, lambda given: dict(zip(names, session.run(None, dict(given)), strict=True)))


def open_bound(path: Path, shape: Shape, threads: int) -> Decoder:
    """Caches stay in onnxruntime's memory."""
    return _Bound(shape, _session(path, threads))


def open_openvino(path: Path, shape: Shape, threads: int) -> Decoder:
    """Caches are inputs and outputs, copied out once."""
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    request = openvino.Core().compile_model(str(path), "CPU", settings).create_infer_request()

    def run(given: Mapping[str, Array]) -> dict[str, Array]:
        made = request.infer(dict(given), share_inputs=True)
        return {key.any_name: value for key, value in made.items()}

    return _Arrays(shape, run)


Open = Callable[[Path, Shape, int], Decoder]
PEERS: Mapping[str, Open] = {
    "onnxruntime": open_onnxruntime,
    "onnxruntime, bound": open_bound,
    "openvino": open_openvino,
}


def engines_of(dims: Sequence[str]) -> dict[str, Open]:
    """What opens a decoder with each engine; ours with default sizes, and once for each of `dims`."""
    ours = {f"{OURS} {sizes}": partial(open_tk, dims=sizes) for sizes in dims}
    return {**PEERS, OURS: open_tk, f"{OURS}, copied": partial(open_tk, copied=True), **ours}


@dataclass(slots=True)
class Measured:
    """Milliseconds of all steps of one model at one number of threads, by engine."""

    model: str
    threads: int
    times: dict[str, list[float]] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def medians(self) -> dict[str, float]:
        """The median of each engine that ran."""
        return {name: statistics.median(times) for name, times in self.times.items()}


def measure(name: str, path: Path, threads: int, rounds: int, engines: Mapping[str, Open]) -> Measured:
    """Open every engine on the model, compare its tokens with the first's, then time them in turns."""
    result, shape = Measured(name, threads), shape_of(path)
    opened, expected = dict[str, Decoder](), list[int]()
    for engine, open_engine in engines.items():
        try:
            opened[engine] = open_engine(path, shape, threads)
            tokens = opened[engine].generate()[0]
        except Exception as error:  # noqa: BLE001 - one engine's failure is a row of the table, not the end
            result.failures[engine] = f"{type(error).__name__}: {error}".replace("\n", "; ")
            continue
        expected = expected or tokens
        if tokens != expected:
            result.failures[engine] = f"other tokens than {next(iter(opened))}: {tokens}, expected {expected}"
    opened = {engine: one for engine, one in opened.items() if engine not in result.failures}
    for _ in range(rounds):
        for engine, one in opened.items():
            time.sleep(0.08)  # threads of the engine before spin that long on the processors
            result.times.setdefault(engine, []).extend(one.generate()[1])
    return result


def table(results: Sequence[Measured], engines: Sequence[str]) -> str:
    """One row for each engine: median and least by number of threads, and the medians by the best other's."""
    rows = []
    for engine in engines:
        row = [engine]
        for one in results:
            medians = one.medians()
            others = [value for name, value in medians.items() if name in PEERS]
            if engine not in medians:
                row += ["-", "-", "-"]
                continue
            ratio = f"{medians[engine] / min(others):.2f}" if others else "-"
            row += [f"{medians[engine]:.2f}", f"{min(one.times[engine]):.2f}", ratio]
        rows.append(row)
    head = ["engine"]
    for one in results:
        head += [f"ms, {one.threads} thread{'s' if one.threads > 1 else ''}", "least", "by the best other"]
    return markdown_table(head, rows)


def report(results: Sequence[Measured], engines: Sequence[str], facts: Mapping[str, Any]) -> str:
    """The whole record as markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    machine_line = f"{facts['processor']}, {facts['processors']} processors, {facts['compiler']}"
    parts = [f"{machine_line}; {versions}; {facts['run']}; {facts['when']}; load {facts['load']:.1f}"]
    for name in dict.fromkeys(one.model for one in results):
        parts += [f"## {name}", table([one for one in results if one.model == name], engines)]
    failures = {f"{one.model}, {engine}: {why}" for one in results for engine, why in one.failures.items()}
    return "\n\n".join([*parts, *(f"- {failure}" for failure in sorted(failures))])


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="*", default=["llama-decoder"], metavar="NAME")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--dims", nargs="*", default=[], metavar="NAME=RANGE,...", help="besides the default")
    parser.add_argument("--rounds", type=int, default=5, help="generations of each engine")
    parser.add_argument("--directory", type=Path, default=WORK / "models", help="where models are kept")
    parser.add_argument("--name", default="decoder", help="of the files that are written")
    arguments = parser.parse_args()
    run = f"{STEPS} steps behind a prompt of {len(PROMPT)}, {arguments.rounds} generations in turns"
    facts, engines = {**machine(), "run": run}, engines_of(arguments.dims)
    results: list[Measured] = []
    for name in arguments.models:
        for threads in arguments.threads:
            path = model_path(name, arguments.directory)
            results.append(measure(name, path, threads, arguments.rounds, engines))
            shown = ", ".join(f"{key} {value:.3f} ms" for key, value in results[-1].medians().items())
            print(f"{name}, {threads} thread(s): {shown}", flush=True)
    text = report(results, list(engines), facts)
    print(f"\n{text}")
    save(arguments.name, {"machine": facts, "results": [asdict(one) for one in results]}, text)


if __name__ == "__main__":
    main()
