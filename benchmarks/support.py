"""What the benchmarks share: models of the zoo, facts about the machine, fair timing, files with results.

Importing this puts the repository's root on the path, so that benchmarks run from a checkout.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import os
import platform
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
from numpy.typing import NDArray

from compiler.core.cache import content_key
from compiler.core.files import write_atomic
from compiler.core.process import run
from compiler.core.settings import load_settings
from compiler.targets.cpu import cpu_facts
from compiler.targets.toolchain import find_cxx
from toolchain import zoo

ROOT = Path(__file__).resolve().parents[1]
WORK = ROOT / "build" / "benchmarks"
LIGHT = (
    "squeezenet",
    "shufflenet",
    "bvlc_alexnet",
    "inception_v1",
    "zfnet512",
    "inception_v2",
    "densenet121",
    "resnet50",
    "vgg19",
)
_PACKAGES = ("numpy", "onnx", "onnxruntime", "onnxruntime-gpu", "openvino", "torch", "triton")

Array = NDArray[Any]
Run = Callable[[], object]


def model_path(name: str, directory: Path) -> Path:
    """The network's ONNX file, made when it is missing or was made by another state of the zoo."""
    path, note = directory / f"{name}.onnx", directory / f"{name}.key"
    key = content_key(*(file.read_bytes() for file in sorted((ROOT / "toolchain" / "zoo").glob("*.py"))))
    if not (path.exists() and note.exists() and note.read_text(encoding="ascii") == key):
        zoo.make(name, path)
        write_atomic(note, key)
    return path


def random_inputs(
    shapes: Mapping[str, Sequence[int]], choices: Mapping[str, int] = MappingProxyType({}), seed: int = 0
) -> dict[str, Array]:
    """Standard normal float32 inputs; those in `choices` int64, each one of so many."""
    generator = np.random.default_rng(seed)
    return {
        name: generator.integers(0, choices[name], shape)
        if name in choices
        else generator.standard_normal(shape, dtype=np.float32)
        for name, shape in shapes.items()
    }


def network_inputs(name: str, batch: int = 1) -> dict[str, Array]:
    """Random inputs of a network of the zoo, `batch` at a time."""
    record = zoo.network(name)
    shapes = {one: (batch * shape[0], *shape[1:]) for one, shape in record.inputs}
    return random_inputs(shapes, dict(record.choices))


@dataclass(frozen=True, slots=True)
class Times:
    """Milliseconds over all counted runs."""

    median: float
    best: float
    p90: float
    runs: int


def interleave(
    engines: Mapping[str, Run], *, seconds: float, turn: float = 0.3, pause: float = 0.08
) -> dict[str, Times]:
    """Time every engine for `seconds`, in turns, so that all see the same state of a shared machine.

    Before its turn an engine waits for `pause` seconds (threads of the engine before spin that long on the
    processors) and then runs uncounted for a third of a turn, once at least.
    """
    counted: dict[str, list[float]] = {name: [] for name in engines}
    spent = 0.0
    while spent < seconds:
        for name, engine in engines.items():
            time.sleep(pause)
            _repeat(engine, turn / 3)
            counted[name] += _repeat(engine, turn)
        spent += turn
    return {name: _times(one) for name, one in counted.items()}


def wait_for(file: Path | None) -> None:
    """Return when a file exists, at once where none is named.

    On a machine that is lent for minutes several benchmarks compile at once; each then times alone, when what
    started them says so.
    """
    if file is not None:
        print(f"ready: waits for {file}", file=sys.stderr, flush=True)
    while file is not None and not file.exists():
        time.sleep(0.05)


def _repeat(engine: Run, seconds: float) -> list[float]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        started = time.perf_counter()
        engine()
        times.append(time.perf_counter() - started)
    return times


def _times(seconds: list[float]) -> Times:
    ordered = sorted(seconds)
    return Times(
        median=statistics.median(ordered) * 1e3,
        best=ordered[0] * 1e3,
        p90=ordered[int(0.9 * (len(ordered) - 1))] * 1e3,
        runs=len(ordered),
    )


def machine() -> dict[str, Any]:
    """Processor, system, compiler and versions: what a number means nothing without."""
    settings = load_settings()
    cxx = find_cxx(settings)
    facts = cpu_facts("host")
    return {
        "processor": _processor(),
        "processors": settings.jobs,
        "features": sorted(facts.features),
        "vector_bits": facts.vector_bits,
        "system": f"{platform.machine()}, {platform.freedesktop_os_release()['PRETTY_NAME']}",
        "compiler": cxx.description,
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES if _version(name)},
        "commit": _commit(),
        "load": os.getloadavg()[0],
        "when": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
    }


def rank_correlation(pairs: Iterable[tuple[tuple[float, float], tuple[float, float]]]) -> float:
    """Kendall's tau over pairs of (estimate, time); pairs with a tie do not count."""
    signs = [(a[0] - b[0]) * (a[1] - b[1]) for a, b in pairs]
    agree, differ = (sum(sign * one > 0 for one in signs) for sign in (1, -1))
    return (agree - differ) / max(1, agree + differ)


def _commit() -> str:
    """The state of the checkout; empty without git, as where a copy of the files was brought to a machine."""
    if shutil.which("git") is None:
        return ""
    commit = run(["git", "-C", str(ROOT), "rev-parse", "HEAD"]).stdout.strip()
    changes = run(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"]).stdout.strip()
    return commit + (" with changes" if changes else "")


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.processor()


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table with the first column to the left and the others to the right."""
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = []
    for row in (head, rule, *rows):
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def save(name: str, data: Mapping[str, Any], text: str) -> None:
    """Write `name`.json and `name`.md below build/benchmarks and say where."""
    write_atomic(WORK / f"{name}.json", json.dumps(data, indent=2) + "\n")
    write_atomic(WORK / f"{name}.md", text + "\n")
    print(f"\nwritten: {WORK / name}.json and .md")
