"""Latency of this project's libraries and of other engines on the same networks, in turns, in one process.

    python benchmarks/peers.py [--networks squeezenet resnet50] [--threads 1 2] [--seconds 3]

Every network is made by the zoo with seeded weights, compiled once by each engine, and run with the same
inputs; results are compared with onnxruntime's. Engines take turns, so a slow moment of a shared machine
meets all of them. A network that cannot be compiled is listed with the reason, and the others are measured.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from support import (
    LIGHT,
    WORK,
    Array,
    Times,
    interleave,
    machine,
    markdown_table,
    model_path,
    network_inputs,
    save,
)

import compiler
from toolchain import zoo

REFERENCE = "onnxruntime"
# Bars of the speed acceptance: geometric mean and worst ratio against onnxruntime.
MEAN_BAR, WORST_BAR = 1.5, 2.5

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

    def ratio(self, engine: str) -> float | None:
        """The engine's median latency by the reference's, None where one is missing."""
        if engine not in self.times or REFERENCE not in self.times:
            return None
        return self.times[engine].median / self.times[REFERENCE].median


def open_tk(model: Path, inputs: Mapping[str, Array], threads: int) -> Engine:
    """Our library, compiled once and kept beside the model."""
    report = _compiled(model)
    context = compiler.load(report).context(threads)
    bound = context.bind(inputs)

    def outputs() -> Outputs:
        bound.run()
        return bound.outputs()

    return Engine("tk", bound.run, outputs)


def _compiled(model: Path) -> Path:
    """The model's library, compiled anew in every process: the compiler may have changed."""
    if model not in _LIBRARIES:
        output = model.with_suffix(".so")
        _LIBRARIES[model] = compiler.compile_model(model, compiler.CompileOptions(output=output)).path
    return _LIBRARIES[model]


_LIBRARIES: dict[Path, Path] = {}


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
    import openvino  # type: ignore[import-not-found]

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


ENGINES: dict[str, Callable[[Path, Mapping[str, Array], int], Engine]] = {
    "onnxruntime": open_onnxruntime,
    "tk": open_tk,
    "openvino": open_openvino,
}


def measure(name: str, threads: int, seconds: float, wanted: Sequence[str], directory: Path) -> Measured:
    """Open every wanted engine on the network, compare the results, then time them in turns."""
    record = zoo.network(name)
    model = model_path(name, directory)
    inputs = network_inputs(name)
    result = Measured(name, threads, record.gflop or 0.0)
    opened: dict[str, Engine] = {}
    for engine in wanted:
        try:
            opened[engine] = ENGINES[engine](model, inputs, threads)
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
    """One row per network, medians and ratios by engine, and a last row of geometric means."""
    others = [engine for engine in engines if engine != REFERENCE]
    head = ["network", "GFLOP", *(f"{engine} ms" for engine in engines)]
    head += [column for engine in others for column in (f"{engine} / {REFERENCE}", f"{engine} error")]
    rows = []
    for one in results:
        row = [one.network, f"{one.gflop:.3g}"]
        row += [f"{one.times[engine].median:.2f}" if engine in one.times else "-" for engine in engines]
        for engine in others:
            ratio = one.ratio(engine)
            row += ["-" if ratio is None else f"{ratio:.2f}"]
            row += [f"{one.errors[engine]:.1e}" if engine in one.errors else "-"]
        rows.append(row)
    means = ["geometric mean", "", *("" for _ in engines)]
    for engine in others:
        ratios = [ratio for one in results if (ratio := one.ratio(engine)) is not None]
        means += [f"{geometric_mean(ratios):.2f}" if ratios else "-", ""]
    return markdown_table(head, [*rows, means])


def verdict(results: Sequence[Measured]) -> str:
    """Where the libraries stand against the bars, in one sentence."""
    ratios = {one.network: ratio for one in results if (ratio := one.ratio("tk")) is not None}
    if not ratios:
        return "no network was compiled"
    mean, worst = geometric_mean(list(ratios.values())), max(ratios, key=lambda name: ratios[name])
    reached = mean <= MEAN_BAR and ratios[worst] <= WORST_BAR and len(ratios) == len(results)
    return (
        f"tk / {REFERENCE}: geometric mean {mean:.2f} (bar {MEAN_BAR}), worst {ratios[worst]:.2f} in {worst} "
        f"(bar {WORST_BAR}), {len(ratios)} of {len(results)} networks: {'' if reached else 'not '}reached"
    )


def report(results: Sequence[Measured], engines: Sequence[str], facts: Mapping[str, Any]) -> str:
    """The whole record as markdown."""
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    machine_line = f"{facts['processor']}, {facts['processors']} processors, {facts['compiler']}"
    parts = [f"{machine_line}; {versions}; {facts['when']}"]
    if facts["load"] > _CALM_LOAD:
        parts.append(f"Busy before the start (load {facts['load']:.1f}): measure again on a quiet machine.")
    for threads in dict.fromkeys(one.threads for one in results):
        some = [one for one in results if one.threads == threads]
        parts += [f"## {threads} thread{'s' if threads > 1 else ''}", table(some, engines), verdict(some)]
    failures = {f"{one.network}, {engine}: {why}" for one in results for engine, why in one.failures.items()}
    parts += [f"- {failure}" for failure in sorted(failures)]
    return "\n\n".join(parts)


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="*", default=list(LIGHT), metavar="NAME")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument(
        "--seconds", type=float, default=3.0, help="per engine, network and number of threads"
    )
    parser.add_argument("--engines", nargs="*", choices=list(ENGINES), default=["onnxruntime", "tk"])
    parser.add_argument("--models", type=Path, default=WORK / "models", help="where the networks are kept")
    parser.add_argument("--name", default="peers", help="of the files that are written")
    arguments = parser.parse_args()
    facts = machine()
    results = []
    for name in arguments.networks:
        for threads in arguments.threads:
            started = time.perf_counter()
            one = measure(name, threads, arguments.seconds, arguments.engines, arguments.models)
            results.append(one)
            shown = ", ".join(f"{key} {value.median:.2f} ms" for key, value in one.times.items())
            print(f"{name}, {threads} thread(s): {shown} ({time.perf_counter() - started:.0f} s)", flush=True)
    text = report(results, arguments.engines, facts)
    print(f"\n{text}")
    save(arguments.name, {"machine": facts, "results": [asdict(one) for one in results]}, text)


if __name__ == "__main__":
    main()
