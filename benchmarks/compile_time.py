"""What a compile costs from an empty cache and from a full one: `tk compile` in a new process.

    python benchmarks/compile_time.py [--networks resnet50 densenet121]

Beside the seconds: the library's size without its constants, and the time from loading it to the first
result.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from support import ROOT, WORK, machine, markdown_table, model_path, random_inputs, save

import compiler
from compiler.core.process import run
from compiler.core.settings import child_environment
from toolchain import zoo

# Seconds from an empty cache that are allowed, where a bar is set; and from a full one, for all.
COLD_BARS = {"resnet50": 20.0, "densenet121": 45.0}
CACHED_BAR = 1.5
CODE_BAR_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Result:
    """Wall seconds of the two compiles and of the first one's stages, bytes, milliseconds."""

    network: str
    cold: float
    cached: float
    kernels: int
    stages: dict[str, float]
    code_bytes: int
    first_result_ms: float


def measure(name: str, models: Path, work: Path) -> Result:
    """Compile twice with a cache of its own, then load and run."""
    model, library = model_path(name, models), work / f"{name}.so"
    environment = {**child_environment(), "TK_CACHE_DIR": str(work / "cache"), "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "toolchain", "compile", str(model), "-o", str(library), "--json"]
    seconds, reports = [], []
    for _ in range(2):
        started = time.perf_counter()
        done = run(command, env=environment)
        seconds.append(time.perf_counter() - started)
        if done.returncode != 0:
            raise SystemExit(done.stdout + done.stderr)
        reports.append(json.loads(done.stdout))
    first = reports[0]
    return Result(
        name,
        seconds[0],
        seconds[1],
        first["kernels"],
        {one["name"]: one["seconds"] for one in first["stages"]},
        library.stat().st_size - first["constant_bytes"],
        _first_result(name, library),
    )


def _first_result(name: str, library: Path) -> float:
    """Milliseconds from opening the library to the end of the first inference, on all processors."""
    inputs = random_inputs(dict(zoo.network(name).inputs))
    started = time.perf_counter()
    with compiler.load(library) as model:
        model.run(inputs)
        return (time.perf_counter() - started) * 1e3


def main() -> None:
    """Print and save the table; exit status 1 when a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--networks", nargs="*", default=list(COLD_BARS), metavar="NAME")
    parser.add_argument("--models", type=Path, default=WORK / "models", help="where the networks are kept")
    arguments = parser.parse_args()
    results = []
    for name in arguments.networks:
        with compiler.private_directory("tk-compile-time") as work:
            results.append(measure(name, arguments.models, work))
    head = [
        "network",
        "cold s",
        "bar",
        "cached s",
        "bar",
        "kernels",
        "code KiB",
        "first result ms",
        "slowest stages",
    ]
    text = markdown_table(head, [_row(one) for one in results])
    print(text)
    save("compile_time", {"machine": machine(), "results": [asdict(one) for one in results]}, text)
    raise SystemExit(any(map(_misses, results)))


def _row(one: Result) -> list[str]:
    bar = COLD_BARS.get(one.network)
    slowest = sorted(one.stages.items(), key=lambda stage: -stage[1])[:3]
    return [
        one.network,
        f"{one.cold:.1f}",
        "-" if bar is None else f"{bar:.0f}",
        f"{one.cached:.2f}",
        f"{CACHED_BAR}",
        str(one.kernels),
        f"{one.code_bytes / 1024:.0f}",
        f"{one.first_result_ms:.0f}",
        ", ".join(f"{name} {seconds:.1f}" for name, seconds in slowest),
    ]


def _misses(one: Result) -> bool:
    bar = COLD_BARS.get(one.network, float("inf"))
    return one.cold > bar or one.cached > CACHED_BAR or one.code_bytes > CODE_BAR_BYTES


if __name__ == "__main__":
    main()
