"""What tuning brings: untuned and tuned libraries beside onnxruntime and OpenVINO, in turns.

    python benchmarks/tuning.py [--networks squeezenet] [--minutes 20] [--threads 1] [--target cpu]

Each network is tuned from a database of its own, which is kept: a second run goes on where the first one
ended, and `--minutes 0` measures what is there. The tuned library is compiled as `tk compile` does it, with
the database; the untuned one without. `gain` is tuned by untuned time, `tk / best` the tuned time by the best
other engine's, of the least times.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from peers import Engine, geometric_mean, open_onnxruntime, open_openvino, worst_error
from support import WORK, Array, Times, interleave, machine, markdown_table, model_path, network_inputs, save

import compiler

NETWORKS = ("squeezenet", "resnet50", "mobilenetv2", "densenet121", "bert-base")
MEAN_BAR, WORST_BAR = 0.90, 1.00
UNTUNED, TUNED, REFERENCE = "untuned", "tuned", "onnxruntime"


@dataclass(frozen=True, slots=True)
class Row:
    """One network: times in ms, tuned by untuned, tuned by the best other engine, kernels and candidates."""

    network: str
    times: Mapping[str, Times]
    gain: float
    of_best: float | None
    tuned: int
    kernels: int
    trials: int
    error: float
    failures: Mapping[str, str]


def main() -> None:
    """Tune, measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="*", default=list(NETWORKS), metavar="NAME")
    parser.add_argument("--minutes", type=float, default=20.0, help="of search for each network; 0: none")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--strategy", default="evolution")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3.0, help="per engine and network")
    parser.add_argument(
        "--engines", nargs="*", choices=(REFERENCE, "openvino"), default=[REFERENCE, "openvino"]
    )
    parser.add_argument("--models", type=Path, default=WORK / "models", help="where the networks are kept")
    parser.add_argument("--databases", type=Path, default=WORK / "tuning", help="where databases are kept")
    parser.add_argument("--name", default="tuning", help="of the files that are written")
    asked = parser.parse_args()
    facts = {**machine(), "run": f"{asked.target}, {asked.minutes:g} min of {asked.strategy} each"}
    rows = []
    for name in asked.networks:
        rows.append(measure(name, asked))
        print(table(rows[-1:]), flush=True)
    text = "\n\n".join((f"{facts['run']}, {asked.threads} thread(s)", table(rows), verdict(rows)))
    print(f"\n{text}")
    save(asked.name, {"machine": facts, "rows": [asdict(one) for one in rows]}, text)


def measure(name: str, asked: argparse.Namespace) -> Row:
    """Tune one network, then time both libraries and the other engines in turns."""
    model, inputs = model_path(name, asked.models), network_inputs(name)
    asked.databases.mkdir(parents=True, exist_ok=True)
    database = asked.databases / f"{name}-{asked.target}-{asked.threads}.db"
    trials = _tuned(model, database, asked)
    plain = _compiled(model, UNTUNED, asked, ())
    made = _compiled(model, TUNED, asked, (database,))
    threads = asked.threads
    openers = {
        UNTUNED: partial(_open, plain.path, inputs, threads),
        TUNED: partial(_open, made.path, inputs, threads),
        REFERENCE: partial(open_onnxruntime, model, inputs, threads),
        "openvino": partial(open_openvino, model, inputs, threads),
    }
    opened: dict[str, Engine] = {}
    failures: dict[str, str] = {}
    for engine in (UNTUNED, TUNED, *asked.engines):
        try:
            opened[engine] = openers[engine]()
        except Exception as error:  # noqa: BLE001 - one engine's failure is a row, not the end
            failures[engine] = f"{type(error).__name__}: {error}".replace("\n", "; ")
    error = worst_error(opened[TUNED].outputs(), opened[UNTUNED].outputs())
    times = interleave({key: one.run for key, one in opened.items()}, seconds=asked.seconds)
    others = [times[one].best for one in asked.engines if one in times]
    return Row(
        name,
        times,
        times[TUNED].best / times[UNTUNED].best,
        times[TUNED].best / min(others) if others else None,
        made.tuned,
        made.kernels,
        trials,
        error,
        failures,
    )


def _tuned(model: Path, database: Path, asked: argparse.Namespace) -> int:
    """Search for so many minutes; how many candidates that measured."""
    if not asked.minutes:
        return 0
    output = model.with_suffix(".searched.so")
    options = compiler.CompileOptions(output, asked.target, threads=asked.threads)
    request = compiler.TuneRequest(
        model,
        options,
        database,
        compiler.Budget(60 * asked.minutes),
        asked.strategy,
        asked.seed,
        asked.threads,
    )
    return compiler.tune_model(request).measured


def _compiled(
    model: Path, kind: str, asked: argparse.Namespace, databases: Sequence[Path]
) -> compiler.CompileReport:
    options = compiler.CompileOptions(
        model.with_suffix(f".{kind}.so"),
        asked.target,
        threads=asked.threads,
        databases=tuple(databases),
        own_database=False,
    )
    return compiler.compile_model(model, options)


def _open(library: Path, inputs: Mapping[str, Array], threads: int) -> Engine:
    bound = compiler.load(library).context(threads).bind(inputs)

    def outputs() -> dict[str, Any]:
        bound.run()
        return {name: array.copy() for name, array in bound.outputs().items()}

    return Engine(library.stem, bound.run, outputs)


def table(rows: Sequence[Row]) -> str:
    """One row per network, and the geometric means."""
    head = ["network", "untuned ms", "tuned ms", "gain", "onnxruntime ms", "openvino ms", "tk / best",
            "kernels", "candidates", "error"]  # fmt: skip
    lines = [
        [
            one.network,
            *(_ms(one, name) for name in (UNTUNED, TUNED)),
            f"{one.gain:.3f}",
            *(_ms(one, name) for name in (REFERENCE, "openvino")),
            "-" if one.of_best is None else f"{one.of_best:.2f}",
            f"{one.tuned} of {one.kernels}",
            str(one.trials),
            f"{one.error:.1e}",
        ]
        for one in rows
    ]
    gains = f"{geometric_mean([one.gain for one in rows]):.3f}"
    of_best = [one.of_best for one in rows if one.of_best is not None]
    best = f"{geometric_mean(of_best):.2f}" if of_best else "-"
    mean = ["geometric mean", "", "", gains, "", "", best, "", "", ""]
    return markdown_table(head, [*lines, mean])


def _ms(row: Row, name: str) -> str:
    return f"{row.times[name].best:.2f}" if name in row.times else "-"


def verdict(rows: Sequence[Row]) -> str:
    """Where tuning stands against the bars, in one sentence."""
    mean, worst = geometric_mean([one.gain for one in rows]), max(rows, key=lambda one: one.gain)
    reached = mean <= MEAN_BAR and worst.gain <= WORST_BAR
    return (
        f"tuned by untuned: geometric mean {mean:.3f} (bar {MEAN_BAR}), worst {worst.gain:.3f} in "
        f"{worst.network} (bar {WORST_BAR}): {'' if reached else 'not '}reached"
    )


if __name__ == "__main__":
    main()
