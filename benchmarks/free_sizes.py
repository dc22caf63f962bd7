"""Libraries with free dimensions beside libraries made for one size: what it costs that a run decides.

    python benchmarks/free_sizes.py [--models bert-base] [--threads 1 2] [--target cuda-nvidia]

ResNet-50 with any number of images, BERT-base with any number of tokens up to 512, the LSTM tagger with any
number of words up to 64. Each is compiled once as it is, without flags, and once for each size; both run with
the same inputs, in turns. Goal: 1.3 times at any size. `--few` gives a few tokens or words kernels of their
own in the library of all sizes: a specialisation for a range, as by `--dim tokens=1..512 --dim tokens=1..16`.
On devices times are end to end, with copies from and to the host. With `--begin-when FILE` libraries are made
at once and timed when that file exists.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import helper, numpy_helper
from peers import worst_error
from support import (
    WORK,
    Array,
    interleave,
    machine,
    markdown_table,
    model_path,
    random_inputs,
    save,
    wait_for,
)

import compiler
from compiler.core.files import write_atomic
from compiler.runtime.loader import BoundRun

GOAL = 1.3
_TOLERANCE = 1e-3
"""Of the scale of a result: f32 sums in another order."""


@dataclass(frozen=True, slots=True)
class Case:
    """A network of the zoo, the extent of its inputs that is left open, and what that is called then."""

    network: str
    extent: int
    symbol: str
    sizes: tuple[int, ...]
    dims: tuple[tuple[str, compiler.SizeRange], ...] = ()
    words: int = 0
    few: compiler.SizeRange | None = None


CASES = (
    Case("resnet50", 1, "batch", (1, 2, 4, 8)),
    Case("bert-base", 128, "tokens", (8, 16, 64, 128, 384, 512), words=30522, few=compiler.SizeRange(1, 16)),
    Case(
        "lstm-tagger",
        64,
        "words",
        (1, 8, 16, 32, 64),
        (("words", compiler.SizeRange(1, 64)),),
        words=10_000,
        few=compiler.SizeRange(1, 8),
    ),
)


@dataclass(frozen=True, slots=True)
class Options:
    """What is measured of each network, and how."""

    threads: tuple[int, ...]
    seconds: float
    sizes: tuple[int, ...]
    target: str
    arch: str | None
    few: bool
    begin_when: Path | None

    @property
    def place(self) -> Path:
        """Where models and libraries are kept."""
        name = self.target if self.target != "cpu" else "here"
        return WORK / "free-sizes" / (self.arch or name)


@dataclass(frozen=True, slots=True)
class Row:
    """Least milliseconds of both libraries at one size."""

    network: str
    threads: int
    size: int
    free: float
    fixed: float

    @property
    def ratio(self) -> float:
        return self.free / self.fixed


def opened(model: onnx.ModelProto, extent: int, symbol: str) -> onnx.ModelProto:
    """The model with an extent of its inputs and outputs left open, as exporters leave it.

    Shapes that Reshape is given keep such an extent, by 0; positions of tokens are as many as there are.
    """
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph = result.graph
    del graph.value_info[:]
    constants = {one.name: one for one in graph.initializer}
    for value in (*graph.input, *graph.output):
        for dim in value.type.tensor_type.shape.dim if value.name not in constants else ():
            if dim.dim_value == extent and (extent > 1 or dim is value.type.tensor_type.shape.dim[0]):
                dim.dim_param = symbol
    for target in {node.input[1] for node in graph.node if node.op_type == "Reshape"}:
        shape = numpy_helper.to_array(constants[target]).copy()
        shape[shape == extent] = 0
        shape[:1] = 0
        constants[target].CopyFrom(numpy_helper.from_array(shape, target))
    places = next((one for one in graph.initializer if one.name == "position_ids"), None)
    if places is not None:
        _slice(graph, places)
    return result


def _slice(graph: onnx.GraphProto, places: onnx.TensorProto) -> None:
    """The first positions of 512, as many as the first input has tokens."""
    places.CopyFrom(numpy_helper.from_array(np.arange(512)[None], "position_ids.all"))
    for name, number in (("zero", 0), ("one", 1), ("two", 2)):
        graph.initializer.append(numpy_helper.from_array(np.array([number]), f"position_ids.{name}"))
    first, *_ = graph.input
    nodes = [
        helper.make_node("Shape", [first.name], ["position_ids.shape"]),
        helper.make_node("Slice", _named("shape", "one", "two"), ["position_ids.count"]),
        helper.make_node("Slice", _named("all", "zero", "count", "one"), ["position_ids"]),
    ]
    for at, node in enumerate(nodes):
        graph.node.insert(at, node)


def _named(*parts: str) -> list[str]:
    return [f"position_ids.{part}" for part in parts]


def measure(case: Case, options: Options) -> list[Row]:
    """Compile, compare the results, time in turns."""
    path = options.place / f"{case.network}.onnx"
    model = opened(onnx.load(model_path(case.network, WORK / "models")), case.extent, case.symbol)
    write_atomic(path, model.SerializeToString())
    apart = case.few if options.few else None
    own = (compiler.SpecialisedSizes(dims={case.symbol: apart}),) if apart else ()
    free = _compiled(path, f"{case.network}.so", options, dict(case.dims), own)
    fixed = {
        size: _compiled(path, f"{case.network}-{size}.so", options, {case.symbol: size})
        for size in case.sizes
        if not options.sizes or size in options.sizes
    }
    wait_for(options.begin_when)
    rows = []
    for size, library in fixed.items():
        inputs = _inputs(model, case, size)
        for count in options.threads:
            bound = {"free": _bound(free, inputs, count), "fixed": _bound(library, inputs, count)}
            off = worst_error(*(_results(one) for one in bound.values()))
            if off > _TOLERANCE:
                raise SystemExit(f"{case.network} {size}: the two libraries differ by {off:.1e}")
            runs = {name: one.run for name, one in bound.items()}
            times = interleave(runs, seconds=options.seconds)
            rows.append(Row(case.network, count, size, times["free"].best, times["fixed"].best))
            one = rows[-1]
            print(f"{one.network} {size}, {count} thread(s): {one.free:.3f} / {one.fixed:.3f} ms", flush=True)
    return rows


def _compiled(
    model: Path,
    name: str,
    options: Options,
    dims: dict[str, int | compiler.SizeRange],
    own: tuple[compiler.SpecialisedSizes, ...] = (),
) -> Path:
    job = compiler.CompileOptions(
        output=options.place / name,
        target=options.target,
        arch=options.arch or compiler.arch_here(options.target),
        dims=dims,
        specialisations=own,
    )
    return compiler.compile_model(model, job).path


def _inputs(model: onnx.ModelProto, case: Case, size: int) -> dict[str, Array]:
    constants = {one.name for one in model.graph.initializer}
    shapes = {
        one.name: [size if dim.dim_param else dim.dim_value for dim in one.type.tensor_type.shape.dim]
        for one in model.graph.input
        if one.name not in constants
    }
    integers = {name: 2 if "mask" in name or "type" in name else case.words for name in shapes}
    return random_inputs(shapes, integers if case.words else {})


def _bound(library: Path, inputs: dict[str, Array], threads: int) -> BoundRun:
    return compiler.load(library).context(threads).bind(inputs)


def _results(bound: BoundRun) -> dict[str, Array]:
    bound.run()
    return {name: np.array(value) for name, value in bound.outputs().items()}


def report(rows: Sequence[Row], facts: dict[str, object]) -> str:
    """The record as markdown."""
    head = ["network", "size", "threads", "free ms", "fixed ms", "free / fixed"]
    cells = [
        [
            one.network,
            str(one.size),
            str(one.threads),
            f"{one.free:.3f}",
            f"{one.fixed:.3f}",
            f"{one.ratio:.2f}",
        ]
        for one in rows
    ]
    worst = max(rows, key=lambda one: one.ratio)
    met = "reached" if worst.ratio <= GOAL else "not reached"
    line = f"worst {worst.ratio:.2f} in {worst.network} at {worst.size} (goal {GOAL}): {met}"
    return "\n\n".join([f"{facts['processor']}, {facts['compiler']}", markdown_table(head, cells), line])


def main() -> None:
    """Measure, print, save."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [case.network for case in CASES]
    parser.add_argument("--models", nargs="*", choices=names, default=names)
    parser.add_argument("--sizes", type=int, nargs="*", default=[], help="default: a few of each model")
    parser.add_argument("--threads", type=int, nargs="*", default=[1])
    parser.add_argument("--seconds", type=float, default=2.0, help="per library, size and number of threads")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--arch", help="another instruction set, e.g. x86-64-v3 for AVX2")
    parser.add_argument("--few", action="store_true", help="a few tokens or words as a specialisation")
    parser.add_argument("--begin-when", type=Path, metavar="FILE", help="time when this file exists")
    given = parser.parse_args()
    options = Options(
        tuple(given.threads),
        given.seconds,
        tuple(given.sizes),
        given.target,
        given.arch,
        given.few,
        given.begin_when,
    )
    rows = []
    for case in CASES:
        if case.network in given.models:
            rows += measure(case, options)
    facts = machine() | {"target": given.target, "arch": given.arch or compiler.arch_here(given.target)}
    text = report(rows, facts)
    print(f"\n{text}")
    name = "free-sizes" if given.target == "cpu" else f"free-sizes-{given.target}"
    save(name, {"machine": facts, "rows": [asdict(one) for one in rows]}, text)


if __name__ == "__main__":
    main()
