"""Latency of the same networks by target `cpu` and by devices on the same cores, in turns, in one process.

    python benchmarks/devices.py [--networks squeezenet bert-base] [--engines sycl-cpu] [--seconds 3]

All use every processor; without `--networks` both tables of `peers.py` are measured, and what counts is the
least time, as there. Results are compared with those of target `cpu`, which its own tests hold against
onnxruntime. An engine is a target, with a part of a device's name after `@` where there are several:
`opencl-cpu@Portable` is PoCL. What cannot be compiled or has no device is listed with the reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from peers import NEWER, Engine, Measured, geometric_mean, worst_error
from support import LIGHT, WORK, Array, interleave, machine, markdown_table, model_path, network_inputs, save

import compiler
from toolchain import zoo

REFERENCE = "cpu"
MEAN_BAR = 1.3
"""Of the speed acceptance: geometric mean of the ratios to target `cpu`, over both tables."""
ENGINES = ("opencl-cpu@Portable", "opencl-cpu@Intel", "sycl-cpu")


def open_engine(name: str, model: Path, inputs: Mapping[str, Array]) -> Engine:
    """The network compiled for a target, ready on one of its devices."""
    target, _, device = name.partition("@")
    output = model.with_name(f"{model.stem}-{target}.so")
    compiler.compile_model(model, compiler.CompileOptions(output=output, target=target))
    bound = compiler.load(output, device=device or None).context().bind(inputs)

    def outputs() -> dict[str, Array]:
        bound.run()
        return {key: array.copy() for key, array in bound.outputs().items()}

    return Engine(name, bound.run, outputs)


def measure(network: str, engines: Sequence[str], seconds: float, directory: Path) -> Measured:
    """Open every engine, compare results, then time them in turns."""
    record = zoo.network(network)
    model = model_path(network, directory)
    inputs = network_inputs(network)
    result = Measured(network, 0, record.gflop or 0.0)
    opened: dict[str, Engine] = {}
    for name in (REFERENCE, *engines):
        try:
            opened[name] = open_engine(name, model, inputs)
        except compiler.TkError as error:
            result.failures[name] = str(error).replace("\n", "; ")
    expected = opened[REFERENCE].outputs()
    result.errors = {name: worst_error(one.outputs(), expected) for name, one in opened.items()}
    result.times = interleave({name: one.run for name, one in opened.items()}, seconds=seconds)
    return result


def table(results: Sequence[Measured], engines: Sequence[str]) -> str:
    """One row per network with least times, ratios and errors; geometric means at the end."""
    head = ["network", f"{REFERENCE} ms"]
    head += [column for name in engines for column in (f"{name} ms", "ratio", "error")]
    rows = []
    for one in results:
        row = [one.network, f"{one.times[REFERENCE].best:.2f}"]
        for name in engines:
            found = _ratio(one, name)
            row += (
                [f"{one.times[name].best:.2f}", f"{found:.2f}", f"{one.errors[name]:.1e}"]
                if found
                else 3 * ["-"]
            )
        rows.append(row)
    means = ["geometric mean", ""]
    for name in engines:
        ratios = [found for one in results if (found := _ratio(one, name))]
        means += ["", f"{geometric_mean(ratios):.2f} of {len(ratios)}" if ratios else "-", ""]
    return markdown_table(head, [*rows, means])


def _ratio(one: Measured, name: str) -> float | None:
    return one.times[name].best / one.times[REFERENCE].best if name in one.times else None


def report(results: Sequence[Measured], engines: Sequence[str], facts: Mapping[str, Any]) -> str:
    """The whole record as markdown."""
    head = f"{facts['processor']}, {facts['processors']} processors, {facts['compiler']}; {facts['when']}"
    load = f"Load before the start: {facts['load']:.1f}. Bar: geometric mean {MEAN_BAR}."
    failures = {f"- {one.network}, {name}: {why}" for one in results for name, why in one.failures.items()}
    return "\n\n".join([head, load, table(results, engines), *sorted(failures)])


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="*", default=[*LIGHT, *NEWER], metavar="NAME")
    parser.add_argument("--engines", nargs="*", default=list(ENGINES), metavar="TARGET[@DEVICE]")
    parser.add_argument("--seconds", type=float, default=3.0, help="per engine and network")
    parser.add_argument("--models", type=Path, default=WORK / "models", help="where the networks are kept")
    parser.add_argument("--name", default="devices", help="of the files that are written")
    arguments = parser.parse_args()
    facts, results = machine(), []
    for network in arguments.networks:
        one = measure(network, arguments.engines, arguments.seconds, arguments.models)
        results.append(one)
        shown = ", ".join(f"{key} {value.best:.2f} ms" for key, value in one.times.items())
        print(f"{network}: {shown}", flush=True)
    text = report(results, arguments.engines, facts)
    print(f"\n{text}")
    save(arguments.name, {"machine": facts, "results": [asdict(one) for one in results]}, text)


if __name__ == "__main__":
    main()
