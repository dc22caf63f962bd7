"""Latency of this project's libraries beside onnxruntime and OpenVINO in three tables.

    python benchmarks/peers.py [--tables varied] [--networks bert-base] [--threads 1 2] [--batch 8]

The nine networks of convolutions; transformers with newer ones; recurrent layers, a detector with what picks
its boxes, attention in windows and trees. Each is made by the zoo with seeded weights, compiled once by each
engine, and run with the same inputs in one process; results are compared with onnxruntime's. Engines take
turns, so a slow moment of a shared machine meets all of them, and what counts is the least time of each. An
engine that fails is listed with the reason, and the others are measured.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from batches import batched_path
from support import (
    LIGHT,
    WORK,
    Array,
    Times,
    interleave,
    machine,
    markdown_table,
    network_inputs,
    save,
)

import compiler
from toolchain import zoo

OURS, REFERENCE = "tk", "onnxruntime"
NEWER = (
    "bert-base",
    "bert-base-dynamo",
    "vit-b-16",
    "vit-b-16-dynamo",
    "gpt2-prefill",
    "gpt2-prefill-dynamo",
    "gpt2-step",
    "gpt2-step-dynamo",
    "whisper-tiny-encoder",
    "whisper-tiny-encoder-dynamo",
    "swin-t",
    "swin-t-dynamo",
    "convnext-tiny",
    "convnext-tiny-dynamo",
    "mobilenetv3-large",
    "efficientnet-b0",
    "unet",
)
TABLES = "light", "newer", "varied"
VARIED = ("lstm-tagger", "gru-encoder", "detector", "swin-t", "forest-1", "forest-1000")


@dataclass(frozen=True, slots=True)
class Group:
    """Networks of one table, and the bars of mean and worst ratio to the best other engine, if any."""

    title: str
    networks: tuple[str, ...]
    mean_bar: float = math.inf
    worst_bar: float = math.inf


_BATCH_BAR = 0.75  # of the geometric mean for several images at a time


def groups_of(tables: Sequence[str], names: Sequence[str], batch: int) -> tuple[Group, ...]:
    """These tables, by default all, or what they have of these networks; the last table has all others."""
    known = {
        "light": Group(
            "Nine networks", LIGHT, 0.70 if batch == 1 else _BATCH_BAR, 0.9 if batch == 1 else math.inf
        ),
        "newer": Group("Transformers and newer networks", NEWER, 0.85, 1.05),
        "varied": Group("Recurrent layers, detection, windows and trees", VARIED, 0.9, 1.2),
    }
    groups = tuple(known[table] for table in tables or TABLES)
    if not names:
        return groups
    listed = {name for one in groups for name in one.networks}
    others = Group("Others", tuple(name for name in names if name not in listed))
    chosen = [
        replace(one, networks=tuple(name for name in names if name in one.networks))
        for one in (*groups, others)
    ]
    return tuple(one for one in chosen if one.networks)


# Runnable processes before the start, the average of a minute, above which a measurement says so.
_CALM_LOAD = 0.5

Outputs = dict[str, Array]


@dataclass(slots=True)
class Engine:
    """One engine that has the network ready: how to run it and what it gives."""

    name: str
    run: Callable[[], object]
    outputs: Callable[[], Outputs]


@dataclass(slots=True)
class Measured:
    """One network at one number of threads."""

    network: str
    threads: int
    gflop: float
    times: dict[str, Times] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def ratio(self) -> float | None:
        """Our least latency by that of the best other engine, None where one is missing."""
        others = [one.best for name, one in self.times.items() if name != OURS]
        return self.times[OURS].best / min(others) if OURS in self.times and others else None


def open_tk(model: Path, inputs: Mapping[str, Array], threads: int, arch: str = "") -> Engine:
    """Our library, compiled once and kept beside the model."""
    context = compiler.load(_compiled(model, arch)).context(threads)
    bound = context.bind(inputs)

    def outputs() -> Outputs:
        bound.run()
        return bound.outputs()

    return Engine(OURS, bound.run, outputs)


@cache
def _compiled(model: Path, arch: str) -> Path:
    """The model's library, compiled anew in every process: the compiler may have changed."""
    output = model.with_suffix(f".{arch}.so" if arch else ".so")
    options = compiler.CompileOptions(output=output, target="cpu", arch=arch or None)
    return compiler.compile_model(model, options).path


def open_onnxruntime(model: Path, inputs: Mapping[str, Array], threads: int) -> Engine:
    """One session on the CPU with all optimisations, its defaults otherwise."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = [one.name for one in session.get_outputs()]
    feeds = dict(inputs)
    return Engine(
        "onnxruntime",
        lambda: session.run(None, feeds),
        lambda: dict(zip(names, session.run(None, feeds), strict=True)),
    )


def open_openvino(model: Path, inputs: Mapping[str, Array], threads: int) -> Engine:
    """One inference request with f32 arithmetic, tuned for latency."""
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
        "NUM_STREAMS": 1,
    }
    compiled = openvino.Core().compile_model(str(model), "CPU", settings)
    request = compiled.create_infer_request()
    for name, array in inputs.items():
        request.set_tensor(name, openvino.Tensor(array))

    def outputs() -> Outputs:
        request.infer()
        return {one.any_name: np.array(request.get_tensor(one).data) for one in compiled.outputs}

    return Engine("openvino", request.infer, outputs)


Open = Callable[[Path, Mapping[str, Array], int], Engine]


def engines_of(arch: str) -> dict[str, Open]:
    """What opens a model with each engine; ours is compiled for `arch`, or for this machine."""
    return {
        REFERENCE: open_onnxruntime,
        "openvino": open_openvino,
        OURS: partial(open_tk, arch=arch),
    }


def measure(
    name: str, threads: int, seconds: float, engines: Mapping[str, Open], directory: Path, batch: int = 1
) -> Measured:
    """Open every engine on the network, compare the results, then time them in turns."""
    result = Measured(name, threads, (zoo.network(name).gflop or 0.0) * batch)
    inputs, opened = network_inputs(name, batch), dict[str, Engine]()
    for engine, open_engine in engines.items():
        try:
            opened[engine] = open_engine(batched_path(name, batch, directory), inputs, threads)
        except Exception as error:  # noqa: BLE001 - one engine's failure is a row of the table, not the end
            result.failures[engine] = f"{type(error).__name__}: {error}".replace("\n", "; ")
    if REFERENCE in opened:
        expected = opened[REFERENCE].outputs()
        for engine, one in opened.items():
            result.errors[engine] = worst_error(one.outputs(), expected)
    result.times = interleave({key: one.run for key, one in opened.items()}, seconds=seconds)
    return result


def worst_error(actual: Outputs, expected: Outputs) -> float:
    """The largest difference of any output, by the largest magnitude of that output."""
    worst = 0.0
    for name, want in expected.items():
        scale = float(np.abs(want).max()) or 1.0
        worst = max(worst, float(np.abs(actual[name].astype(np.float64) - want).max()) / scale)
    return worst


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of positive numbers."""
    return math.exp(sum(math.log(one) for one in values) / len(values))


def table(results: Sequence[Measured], engines: Sequence[str]) -> str:
    """One row per network: least times, ours by the best other, our error; a last row with the mean."""
    head = ["network", "GFLOP", *(f"{engine} ms" for engine in engines), f"{OURS} / best", "error"]
    rows = []
    for one in results:
        ratio = one.ratio()
        times = [_shown(one.times[engine].best) if engine in one.times else "-" for engine in engines]
        error = f"{one.errors[OURS]:.1e}" if OURS in one.errors else "-"
        rows.append(
            [one.network, f"{one.gflop:.3g}", *times, "-" if ratio is None else f"{ratio:.2f}", error]
        )
    ratios = [ratio for one in results if (ratio := one.ratio()) is not None]
    mean = f"{geometric_mean(ratios):.2f}" if ratios else "-"
    return markdown_table(head, [*rows, ["geometric mean", "", *("" for _ in engines), mean, ""]])


def _shown(milliseconds: float) -> str:
    """To a hundredth, or a ten-thousandth of less than one."""
    return f"{milliseconds:.2f}" if milliseconds >= 1 else f"{milliseconds:.4f}"


def verdict(results: Sequence[Measured], group: Group) -> str:
    """Where the libraries stand against the bars, in one sentence."""
    ratios = {one.network: ratio for one in results if (ratio := one.ratio()) is not None}
    if not ratios:
        return "nothing to compare"
    mean, worst = geometric_mean(list(ratios.values())), max(ratios, key=lambda name: ratios[name])
    whole = len(ratios) == len(results)
    reached = mean <= group.mean_bar and ratios[worst] <= group.worst_bar and whole
    bars = ["" if math.isinf(bar) else f" (bar {bar})" for bar in (group.mean_bar, group.worst_bar)]
    return (
        f"{OURS} by the best other engine: geometric mean {mean:.2f}{bars[0]}, worst {ratios[worst]:.2f} in "
        f"{worst}{bars[1]}, {len(ratios)} of {len(results)} networks"
        + ("" if bars == ["", ""] else f": {'' if reached else 'not '}reached")
    )


def report(
    results: Sequence[Measured], groups: Sequence[Group], engines: Sequence[str], facts: Mapping[str, Any]
) -> str:
    """The whole record as markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    machine_line = f"{facts['processor']}, {facts['processors']} processors, {facts['compiler']}"
    parts = [f"{machine_line}; {versions}; {facts['run']}; {facts['when']}"]
    if facts["load"] > _CALM_LOAD:
        parts.append(f"Busy before the start (load {facts['load']:.1f}): measure again on a quiet machine.")
    for group in groups:
        for threads in dict.fromkeys(one.threads for one in results):
            some = [one for one in results if one.threads == threads and one.network in group.networks]
            if some:
                count = f"{threads} thread{'s' if threads > 1 else ''}"
                parts += [f"## {group.title}, {count}", table(some, engines), verdict(some, group)]
    failures = {f"{one.network}, {engine}: {why}" for one in results for engine, why in one.failures.items()}
    parts += [f"- {failure}" for failure in sorted(failures)]
    return "\n\n".join(parts)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", nargs="*", choices=TABLES, default=[], help="default: all of them")
    parser.add_argument("--networks", nargs="*", default=[], metavar="NAME", help="default: all of a table")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--batch", type=int, default=1, help="images at a time")
    parser.add_argument("--arch", default="", help="of our libraries; default: this machine's")
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="per engine, network and number of threads"
    )
    parser.add_argument("--engines", nargs="*", choices=list(engines_of("")), default=list(engines_of("")))
    parser.add_argument("--models", type=Path, default=WORK / "models", help="where the networks are kept")
    parser.add_argument("--name", default="peers", help="of the files that are written")
    arguments = parser.parse_args()
    run = f"batch {arguments.batch}, {OURS} for {arguments.arch or 'this machine'}, least of the turns"
    facts = {**machine(), "run": run}
    groups = groups_of(arguments.tables, arguments.networks, arguments.batch)
    engines = {name: one for name, one in engines_of(arguments.arch).items() if name in arguments.engines}
    results: list[Measured] = []
    for name in dict.fromkeys(name for group in groups for name in group.networks):
        for threads in arguments.threads:
            started = time.perf_counter()
            one = measure(name, threads, arguments.seconds, engines, arguments.models, arguments.batch)
            results.append(one)
            shown = ", ".join(f"{key} {_shown(value.best)} ms" for key, value in one.times.items())
            print(f"{name}, {threads} thread(s): {shown} ({time.perf_counter() - started:.0f} s)", flush=True)
    text = report(results, groups, list(engines), facts)
    print(f"\n{text}")
    save(arguments.name, {"machine": facts, "results": [asdict(one) for one in results]}, text)


if __name__ == "__main__":
    main()
