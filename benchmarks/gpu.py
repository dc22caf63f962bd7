"""Everything that needs a GPU, in one command: every network verified and timed, then the peers beside it.

    python benchmarks/gpu.py [--target cuda-nvidia] [--networks squeezenet resnet50] [--no-peers]

Without a GPU of the target it says `not run`, with the reason, and ends: nothing is counted as passed. The
peers are those of gpu_peers.py, which takes finer options. Tables are written as they grow.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from gpu_peers import ENGINES, NETWORKS, TARGETS, cases_of, measure_all
from support import WORK, machine, markdown_table, model_path, save

import compiler
from toolchain import zoo


@dataclass(frozen=True, slots=True)
class Row:
    """One network on the GPU; `problem` says why there are no times."""

    network: str
    needed: float | None = None
    p50_ms: float | None = None
    kernels_ms: float | None = None
    gflops: float | None = None
    problem: str = ""


def tried(network: str, target: str, seconds: float, directory: Path) -> Row:
    """Compile, verify and time one network."""
    model = model_path(network, directory)
    library = model.with_name(f"{network}-{target}.so")
    try:
        compiler.compile_model(model, compiler.CompileOptions(output=library, target=target))
        verified = compiler.verify_library(compiler.VerifyRequest(library, model, runs=1))
        if not verified.passed:
            return Row(network, verified.needed, problem="wrong result")
        timed = compiler.bench_library(compiler.BenchRequest(library, seconds=seconds))
    except compiler.TkError as error:
        return Row(network, problem=str(error).replace("\n", "; "))
    finally:
        library.unlink(missing_ok=True)
    kernels = None if timed.on_device is None else timed.on_device.kernels_ms
    return Row(network, verified.needed, timed.p50_ms, kernels, timed.gflops)


def table(rows: list[Row]) -> str:
    """One row per network."""
    lines = [
        [
            row.network,
            "-" if row.needed is None else f"{row.needed:.1e}",
            "-" if row.p50_ms is None else f"{row.p50_ms:.3f}",
            "-" if row.kernels_ms is None else f"{row.kernels_ms:.3f}",
            "-" if row.gflops is None else f"{row.gflops:.0f}",
            row.problem,
        ]
        for row in rows
    ]
    return markdown_table(["network", "error", "end to end ms", "kernels ms", "GFLOP/s", "problem"], lines)


def verify_all(found: compiler.TargetReport, networks: Sequence[str], seconds: float, models: Path) -> None:
    """Verify and time the networks; the table is written after each."""
    facts, rows = machine(), list[Row]()
    for network in networks:
        rows.append(tried(network, found.name, seconds, models))
        print(rows[-1], flush=True)
        text = f"{found.name}: {found.runs.reason}\n\n{table(rows)}"
        record = {"machine": facts, "device": found.runs.reason, "rows": [asdict(row) for row in rows]}
        save(f"gpu-{found.name}", record, text)
    print(f"\n{found.name}: {found.runs.reason}\n\n{table(rows)}")


def main() -> None:
    """Verify and measure, or say why not."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--target", default="cuda-nvidia", metavar="NAME")
    parser.add_argument("--networks", nargs="*", default=list(zoo.networks()), metavar="NAME")
    parser.add_argument("--seconds", type=float, default=3.0, help="per network")
    parser.add_argument("--no-peers", action="store_true", help="leave PyTorch and onnxruntime out")
    parser.add_argument("--models", type=Path, default=WORK / "models", help="where the networks are kept")
    arguments = parser.parse_args()
    found = next(one for one in compiler.list_targets() if arguments.target in (one.name, *one.aliases))
    if not found.runs:
        print(f"not run: {found.name}: {found.runs.reason}")
        return
    verify_all(found, arguments.networks, arguments.seconds, arguments.models)
    device = next((key for key, target in TARGETS.items() if target == found.name), None)
    if arguments.no_peers or device is None:
        return
    cases = cases_of(NETWORKS, (1, 16), ("off", "on") if device == "cuda" else ("off",))
    text = measure_all(device, cases, ENGINES, arguments.seconds, arguments.models, f"gpu-peers-{device}")
    print(f"\n{text}")


if __name__ == "__main__":
    main()
