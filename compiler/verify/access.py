"""What the accesses of a module's kernels cost on a GPU, counted in the emulator from real addresses.

Some blocks of each launch run, on memory that holds 0, and their counts stand for all: the first block, the
last one, and some between them; of clusters of blocks whole ones. `runtime/emulator/access.cpp` counts.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from compiler.core.diagnostics import BadInputError, WrongResultError
from compiler.core.settings import Settings, load_settings
from compiler.runtime.manifest import manifest_of
from compiler.targets import get_target
from compiler.verify.access_calls import Counted, Emulation
from compiler.verify.access_report import AccessReport, AccessRow, Grid, LaunchAccess, moved_bytes
from compiler.verify.device import emulated_target
from compiler.verify.emulate import EmulatedKernel, build_emulation, carried_text, split_module
from compiler.verify.module_lines import innermost_lines

BLOCKS = 12
"""About how many blocks of a launch run, if nothing else is asked for."""
_FEWEST = 3
"""Places of an axis: the first, one between, the last."""
_SUMMED = ("requests", "lanes", "units", "least")
_DECIMALS = 3
"""Weights of blocks are fractions: sums of them are not whole to the last bit."""
_GOLDEN = 0.6180339887498949
"""Multiples of it, without their whole parts, are spread evenly and miss every period of a grid."""


def access_of(library: Path, *, blocks: int = BLOCKS, settings: Settings | None = None) -> AccessReport:
    """Count the accesses of a library's kernels, in about `blocks` blocks of each launch.

    Raises BadInputError when it has no kernels in CUDA or HIP, or sizes that a run decides; BuildError when
    the C++ compiler refuses them; WrongResultError when the emulator finds a defect in one.
    """
    manifest = manifest_of(library)
    emulated_target(library, manifest)
    return access_of_module(library, manifest, carried_text(library), blocks=blocks, settings=settings)


def access_of_module(
    path: Path,
    manifest: Mapping[str, Any],
    text: str,
    *,
    blocks: int = BLOCKS,
    settings: Settings | None = None,
) -> AccessReport:
    """The same for a module's text with its manifest, which no vendor's compiler has seen yet."""
    _check_sizes(path, manifest)
    found = measure_module(
        text,
        [
            Launched(item["name"], _grid(item["grid"]), _grid(item["block"]), number, kernel["steps"])
            for number, kernel in enumerate(manifest["kernels"])
            for item in kernel["launches"]
        ],
        subgroup=get_target(manifest["target"], manifest["arch"]).facts.subgroup_sizes[0],
        blocks=blocks,
        settings=settings or load_settings(),
    )
    least = tuple(kernel["bytes"] for kernel in manifest["kernels"])
    return AccessReport(path, manifest["target"], manifest["arch"], found, least)


def _check_sizes(library: Path, manifest: Mapping[str, Any]) -> None:
    free = [manifest["batch"]] if manifest.get("batch") else manifest.get("symbols", ())
    if free:
        raise BadInputError(
            "accesses are counted for one size",
            where=str(library),
            why="a run decides " + ", ".join(one["name"] or "a dimension without name" for one in free),
            hint="compile the model for one size: --shape, --dim",
        )


@dataclass(frozen=True, slots=True)
class Launched:
    """A launch of one of a module's kernels; `kernel` and `calls` are for the report."""

    function: str
    grid: Grid
    block: Grid
    kernel: int = 0
    calls: int = 1


def measure_module(
    text: str,
    launches: Sequence[Launched],
    *,
    subgroup: int | None = None,
    blocks: int = BLOCKS,
    settings: Settings,
) -> tuple[LaunchAccess, ...]:
    """Count the accesses of launches of a module's kernels, with sub-groups of so many lanes.

    Raises what `access_of` raises.
    """
    module = split_module(text, subgroup)
    emulation = Emulation(build_emulation(text, settings, subgroup=subgroup, access=True))
    kernels = {one.name: one for one in module.kernels}
    calls = [
        (one, unit) for one in launches for unit in _sampled_units(one.grid, kernels[one.function], blocks)
    ]

    def measured(call: tuple[Launched, tuple[int, float]]) -> list[Counted]:
        one, (unit, _) = call
        rows, problem = emulation.measure(
            one.function, one.grid, one.block, kernels[one.function].sizes, unit
        )
        if problem:
            raise WrongResultError("the emulator found a defect in a kernel", where=one.function, why=problem)
        return rows

    with ThreadPoolExecutor(max_workers=settings.jobs) as pool:
        found = list(pool.map(measured, calls))
    lines = emulation.lines(row.place for rows in found for row in rows if row.kind != "barrier")
    parts: dict[Launched, list[tuple[float, list[Counted]]]] = defaultdict(list)
    for (one, (_, weight)), rows in zip(calls, found, strict=True):
        parts[one].append((weight, rows))
    made = [_launch(one, parts[one], lines, kernels[one.function], module.subgroup) for one in launches]
    return _with_shares(made)


def sampled(grid: Grid, most: int) -> list[tuple[int, float]]:
    """About so many blocks of a grid by number, each with how many it stands for.

    Of each axis some places: the first, the last and those between, which stand for one another. What a block
    does depends on whether it is at a border of an axis.
    """
    places: dict[int, list[tuple[int, float]]] = {}
    left = max(most, 1)
    for done, axis in enumerate(sorted(range(3), key=lambda one: grid[one])):
        places[axis] = _places(grid[axis], max(_FEWEST, int(left ** (1 / (3 - done)) + 1e-9)))
        left = max(left // len(places[axis]), 1)
    (xs, ys, zs), (width, height, _) = (places[0], places[1], places[2]), grid
    return [
        ((z * height + y) * width + x, of_x * of_y * of_z)
        for (z, of_z), (y, of_y), (x, of_x) in product(zs, ys, xs)
    ]


def _sampled_units(grid: Grid, kernel: EmulatedKernel, most: int) -> list[tuple[int, float]]:
    """What runs of a launch: blocks, or the clusters that they form, about `most` blocks in all."""
    x, y, z = grid
    return sampled((x, y, -(-z // kernel.cluster)), most // kernel.cluster)


def _places(extent: int, most: int) -> list[tuple[int, float]]:
    if extent <= most:
        return [(place, 1.0) for place in range(extent)]
    inner = sorted({1 + int((n + 0.5) * _GOLDEN % 1.0 * (extent - 2)) for n in range(most - 2)})
    weight = (extent - 2) / len(inner)
    return [(0, 1.0), *((place, weight) for place in inner), (extent - 1, 1.0)]


def _launch(
    one: Launched,
    parts: Sequence[tuple[float, Sequence[Counted]]],
    lines: Mapping[int, int],
    kernel: EmulatedKernel,
    lanes: int,
) -> LaunchAccess:
    weighted = [(weight, row) for weight, rows in parts for row in rows]
    barriers = sum(weight * row.requests for weight, row in weighted if row.kind == "barrier")
    return LaunchAccess(
        kernel=one.kernel,
        function=one.function,
        grid=one.grid,
        block=one.block,
        calls=one.calls,
        sampled=len(parts) * kernel.cluster,
        lanes=lanes,
        barriers=round(barriers / _count(one.grid), _DECIMALS),
        cut=sum(row.requests for _, row in weighted if row.kind == "cut"),
        rows=tuple(_rows(weighted, lines, kernel)),
    )


def _rows(
    weighted: Sequence[tuple[float, Counted]], lines: Mapping[int, int], kernel: EmulatedKernel
) -> Iterable[AccessRow]:
    """One row for each line, kind and size, in the order of the lines."""
    sums: dict[tuple[int, str, int], Counter[str]] = defaultdict(Counter)
    worst: Counter[tuple[int, str, int]] = Counter()
    for weight, row in weighted:
        if row.kind in ("barrier", "cut") or (row.kind == "branch" and not row.units):
            continue
        key = (lines.get(row.place, 0), row.kind, row.bytes)
        worst[key] = max(worst[key], row.most)
        for name in _SUMMED:
            sums[key][name] += weight * getattr(row, name)
    texts = kernel.text.splitlines()
    innermost = innermost_lines(kernel.text)
    for (line, kind, size), of in sorted(sums.items()):
        at = line - kernel.line
        inside = 0 <= at < len(texts)
        yield AccessRow(
            line=line if inside else 0,
            text=texts[at].strip() if inside else "",
            kind=kind,
            bytes=size,
            **{name: round(of[name], _DECIMALS) for name in _SUMMED},
            worst=worst[line, kind, size],
            innermost=at in innermost,
        )


def _with_shares(launches: Sequence[LaunchAccess]) -> tuple[LaunchAccess, ...]:
    whole = sum(one.moved * one.calls for one in launches) or 1.0

    def shared(one: LaunchAccess, row: AccessRow) -> AccessRow:
        return replace(row, share=moved_bytes((row,)) * one.calls / whole)

    return tuple(replace(one, rows=tuple(shared(one, row) for row in one.rows)) for one in launches)


def _grid(sizes: Sequence[int]) -> Grid:
    x, y, z = sizes
    return x, y, z


def _count(grid: Grid) -> int:
    x, y, z = grid
    return x * y * z
