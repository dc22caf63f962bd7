"""Small models side by side in few large ones, for devices whose programs take long to build."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import compiler
from compiler.verify.check import poisoned
from compiler.verify.device import load_anywhere
from tests.support.onnx_models import assert_close, single
from tests.support.op_cases import Case

Arrays = dict[str, np.ndarray]


@dataclass(frozen=True)
class Part:
    """A small model, what it is given, and what its oracle makes of it alone."""

    name: str
    proto: onnx.ModelProto
    feeds: Arrays
    want: Arrays
    tolerance: float


@dataclass(frozen=True)
class Merged:
    """One model with the nodes of several parts; names of part N begin with `cN_`."""

    name: str
    parts: tuple[Part, ...]
    proto: onnx.ModelProto
    feeds: Arrays

    def problems(self, got: Arrays) -> list[str]:
        """What is wrong with outputs, part by part."""
        found = []
        for number, part in enumerate(self.parts):
            for output, array in part.want.items():
                what = f"{part.name}, output {output}"
                try:
                    assert_close(got[f"c{number}_{output}"], array, part.tolerance, what)
                except AssertionError as error:
                    found.append(f"{what}: {str(error)[:600]}")
        return found


def merged(cases: Sequence[Case], size: int) -> Iterator[tuple[str, tuple[Case, ...]]]:
    """The cases in groups of one opset and at most `size`, each with a name; typical ones by themselves."""
    typical = _typical(cases)
    others = [case for case in cases if case.name not in typical]
    for prefix, some in ((_TYPICAL, list(typical.values())), ("", others)):
        ordered = sorted(some, key=lambda case: case.opset)
        for opset, group in groupby(ordered, key=lambda case: case.opset):
            items = tuple(group)
            for at in range(0, len(items), size):
                yield f"{prefix}opset{opset}-{at}", items[at : at + size]


def typical_first(names: Iterable[str]) -> list[Any]:
    """The names of groups as parameters of a test; those without typical cases are slow.

    Attributes and opsets change the loops, which are the same for all targets: tests/unit/graph/test_ops.py
    has every case of them.
    """
    return [pytest.param(name, marks=() if name.startswith(_TYPICAL) else pytest.mark.slow) for name in names]


_TYPICAL = "typical-"


def _typical(cases: Sequence[Case]) -> dict[str, Case]:
    """By name one case of each operator and element types of its inputs, of as few opsets as may be."""
    sizes = Counter(case.opset for case in cases)
    kinds: dict[tuple[str, frozenset[str]], Case] = {}
    for case in sorted(cases, key=lambda case: -sizes[case.opset]):
        types = frozenset(array.dtype.name for array in case.inputs if array is not None)
        kinds.setdefault((case.op, types), case)
    return {case.name: case for case in kinds.values()}


def merge(name: str, cases: Sequence[Case]) -> Merged:
    """One model of the cases."""
    return join(name, [_part(case) for case in cases])


def _part(case: Case) -> Part:
    proto, given = single(case.op, case.inputs, case.attrs, case.opset, case.known, case.outputs)
    return Part(case.name, proto, given, case.oracle(proto, given), max(case.tolerance, 1e-5))


def join(name: str, parts: Sequence[Part]) -> Merged:
    """One model of models of the same opset."""
    graph = onnx.GraphProto(name="merged")
    feeds: Arrays = {}
    for number, part in enumerate(parts):
        prefix = f"c{number}_"
        feeds |= {prefix + key: value for key, value in part.feeds.items()}
        _add(graph, part.proto.graph, prefix)
    model = onnx.ModelProto()
    model.CopyFrom(parts[0].proto)
    model.graph.CopyFrom(graph)
    return Merged(name, tuple(parts), model, feeds)


def assert_computes(together: Merged, target: str, directory: Path, device: str | None = None) -> None:
    """Compiled for a target and run on a device, every part computes what onnxruntime computes."""
    onnx.save(together.proto, directory / "m.onnx")
    options = compiler.CompileOptions(output=directory / "m.so", target=target)
    compiler.compile_model(directory / "m.onnx", options)
    with load_anywhere(directory / "m.so", device=device) as model, model.context() as context:
        got = context.run(together.feeds, out=poisoned(model.outputs))
    problems = together.problems(got)
    assert not problems, "\n".join(problems)


def _add(graph: onnx.GraphProto, more: onnx.GraphProto, prefix: str) -> None:
    for node in more.node:
        copy = graph.node.add()
        copy.CopyFrom(node)
        copy.name = prefix + node.name
        for names in (copy.input, copy.output):
            renamed = [prefix + one if one else one for one in names]
            del names[:]
            names.extend(renamed)
    for kind in ("input", "output", "initializer", "value_info"):
        for item in getattr(more, kind):
            copy = getattr(graph, kind).add()
            copy.CopyFrom(item)
            copy.name = prefix + item.name
