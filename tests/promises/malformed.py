"""P7: a model whose bytes are damaged is refused, or compiled into what onnxruntime makes of it, too."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx

import compiler
from compiler import TkError
from compiler.frontend.onnx import import_model
from compiler.graph.dtypes import to_numpy
from compiler.graph.interpret import evaluate
from compiler.graph.ir import TensorType
from compiler.runtime.specs import TensorSpec
from compiler.verify.compare import compare
from compiler.verify.reference import OnnxRuntime
from compiler.verify.tolerance import reduction_length, tolerance_for
from tests.promises.promise import Case, Ended, Promise
from tests.promises.seeds import SEEDS
from tests.promises.trial import Attempt, attempt, compile_here, warm

_SECONDS, _MEMORY = 5.0, 1 << 30
_BUILD_SECONDS = 120.0  # of the C++ compiler, which counts for no model
_CUTS, _FLIPS, _OTHERS = 150, 160, 40
_LONGEST_PIECE = 32
_LIBRARIES = 8  # of so many that are accepted one becomes a library; of the others the graph is evaluated
_OPEN = "without a value"
_EVALUATED_BYTES = 256 << 20  # of all results: what is promised of memory is a compile's, not a run's


def damage(kind: str, data: bytes, drawn: random.Random) -> bytes:
    """A model's bytes with one thing wrong."""
    at = drawn.randrange(len(data))
    to = min(len(data), at + drawn.randrange(1, _LONGEST_PIECE))
    if kind == "bit":
        return data[:at] + bytes([data[at] ^ 1 << drawn.randrange(8)]) + data[at + 1 :]
    if kind == "byte":
        return data[:at] + drawn.randbytes(1) + data[at + 1 :]
    if kind == "twice":
        return data[:to] + data[at:to] + data[to:]
    if kind == "left out":
        return data[:at] + data[to:]
    if kind == "piece of another":
        other = seed_bytes(drawn.choice(list(SEEDS)))
        start = drawn.randrange(len(other))
        return data[:at] + other[start : start + drawn.randrange(1, _LONGEST_PIECE)] + data[at:]
    return _field_of_another(data, drawn)


def _field_of_another(data: bytes, drawn: random.Random) -> bytes:
    """A part of the model, as a whole, in place of one of the same kind, which another model has."""
    own, other = onnx.ModelProto.FromString(data), onnx.ModelProto()
    other.ParseFromString(seed_bytes(drawn.choice(list(SEEDS))))
    fields = ("node", "initializer", "input", "output")
    name = drawn.choice([one for one in fields if getattr(own.graph, one) and getattr(other.graph, one)])
    into = drawn.choice(getattr(own.graph, name))
    into.CopyFrom(drawn.choice(getattr(other.graph, name)))
    changed: bytes = own.SerializeToString()
    return changed


@cache
def seed_bytes(name: str) -> bytes:
    """A model that is as it should be."""
    made: bytes = SEEDS[name]().SerializeToString()
    return made


def _cases(drawn: random.Random) -> Iterator[Case]:
    kinds = {
        "bit": _FLIPS, "byte": _OTHERS, "twice": _OTHERS, "left out": _OTHERS, "piece of another": _OTHERS,
        "field of another": _OTHERS,
    }  # fmt: skip
    for name in SEEDS:
        data = seed_bytes(name)
        for length in sorted(drawn.sample(range(len(data)), min(len(data), _CUTS))):
            yield Case(f"{name}, cut at {length}", partial(_try, name, data[:length]))
        for kind, count in kinds.items():
            for number in range(count):
                broken = damage(kind, data, drawn)
                yield Case(f"{name}, {kind} {number}", partial(_try, name, broken))


def _try(seed: str, data: bytes, folder: Path) -> Ended:
    """Compile the model to sources, and where that is accepted to a library, which is run."""
    warm(seed)
    model = folder / "model.onnx"
    model.write_bytes(data)
    ended = attempt(partial(_compiled, model, folder / "out"), seconds=_SECONDS, memory=_MEMORY)
    if ended.code == 2 and _OPEN in ended.says:
        return Ended("asks for a dimension")
    fault = ended.broken(_SECONDS, _MEMORY) or _extra(folder)
    if fault or ended.code:
        return Ended("refused", fault)
    if ended.answer["large"]:
        return Ended("compiled, and too large to be run")
    if ended.answer["refused"]:
        return Ended("compiled, and a run says what is wrong")
    if zlib.crc32(data) % _LIBRARIES == 0:
        made = attempt(partial(_library, model, folder / "out"), seconds=_BUILD_SECONDS, memory=_MEMORY)
        fault = made.broken(_BUILD_SECONDS, _MEMORY, (0,)) or _extra(folder)
        if fault or made.answer["refused"]:
            return Ended("compiled, and a run says what is wrong", fault)
    theirs = attempt(partial(_theirs, model, folder / "out"), seconds=_BUILD_SECONDS, memory=_MEMORY)
    if theirs.code != 0:
        return Ended("compiled; onnxruntime refuses it")
    return _compared(theirs, folder / "out")


def _compiled(model: Path, out: Path) -> Mapping[str, Any]:
    """Compile to sources; keep what goes into the graph and comes out, by the operators' definitions."""
    compile_here(model, out / "sources", emit="source")
    graph = import_model(model)
    if sum(value.type.bytes for item in graph.nodes for value in item.outputs) > _EVALUATED_BYTES:
        return {"large": True}
    specs = tuple(map(_spec, graph.input_names, graph.input_types))
    feeds = compiler.read_feeds(specs, (), 0)
    with np.errstate(all="ignore"):
        made = evaluate(graph, feeds)
    results = list(made.values())[: len(made) - graph.checks]
    _keep(out / "in.npz", feeds.values())
    _keep(out / "ours.npz", results)
    return {"large": False, "refused": not all(np.all(one) for one in list(made.values())[len(results) :])}


def _spec(name: str, kind: TensorType) -> TensorSpec:
    return TensorSpec(name, to_numpy(kind.dtype).name, kind.shape, kind.bytes)


def _extra(folder: Path) -> str:
    extra = {path.name for path in folder.iterdir()} - {"model.onnx", "out"}
    return f"files beside: {', '.join(sorted(extra))}" if extra else ""


def _library(model: Path, out: Path) -> Mapping[str, Any]:
    """The same as a library, in place of the operators' definitions."""
    compile_here(model, out / "model.so")
    with compiler.load(out / "model.so") as loaded:
        feeds = compiler.read_feeds(loaded.inputs, (), 0)
        try:
            made = loaded.run(feeds)
        except TkError as error:
            return {"refused": str(error)}
    _keep(out / "ours.npz", made.values())
    return {"refused": ""}


def _keep(path: Path, arrays: Iterable[Any]) -> None:
    """By number: a name may be anything."""
    plain = {f"a{number}": np.asarray(array) for number, array in enumerate(arrays)}
    np.savez(path, allow_pickle=False, **plain)


def _theirs(model: Path, out: Path) -> Mapping[str, Any]:
    """The same by onnxruntime, and how far both may be apart."""
    runtime = OnnxRuntime(model, 1)
    with np.load(out / "in.npz") as kept:
        values = list(kept.values())
    proto = onnx.load(model)
    inner = {one.name for one in proto.graph.initializer}
    names = [one.name for one in proto.graph.input if one.name not in inner]
    made = runtime.run(dict(zip(names, values, strict=True)))
    _keep(out / "theirs.npz", made.values())
    return {"length": reduction_length(proto)}


def _compared(theirs: Attempt, out: Path) -> Ended:
    with np.load(out / "ours.npz") as ours, np.load(out / "theirs.npz") as others:
        if not all(np.isfinite(one.astype(np.float64)).all() for one in others.values()):
            return Ended("compiled; onnxruntime's numbers are not finite")
        if len(ours) != len(others):
            return Ended("compiled", f"{len(ours)} outputs, onnxruntime makes {len(others)}")
        for name, expected in others.items():
            tolerance = tolerance_for(expected.dtype, theirs.answer["length"])
            found = compare(name, ours[name], expected, tolerance)
            if found.problem or found.needed > tolerance:
                return Ended("compiled", f"differs from onnxruntime: {found.problem or found}")
    return Ended("compiled, and as onnxruntime")


PROMISE = Promise(
    name="P7",
    promised="a damaged model is refused in plain words",
    trials="damaged models",
    criterion=(
        "exit code 0 or 3 (2 where a dimension is left open), no signal, no traceback, at most 5 s of a "
        "processor and 1 GB, no file beside the output; what is compiled means what it does to "
        "onnxruntime, where that takes the model, its numbers are finite and all results take at most "
        "256 MB: the graph evaluated by the operators' definitions, and every eighth as a library"
    ),
    least=10_000,
    share=0.003,
    cases=_cases,
)
