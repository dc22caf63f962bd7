"""The cases that come with the onnx package: node cases, which it generates, and small models."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.loader
from onnx import numpy_helper

NODE = "node"
MODEL_KINDS = ("simple", "pytorch-converted", "pytorch-operator")
"""Kinds of models whose data the package has; those of whole networks are downloaded, and left out."""


@dataclass(frozen=True)
class OnnxCase:
    """A model, and pairs of what it is given and what it makes, in the order of its inputs and outputs.

    Where the model has sequences or optional values, lists and None stand for them.
    """

    name: str
    kind: str
    model: onnx.ModelProto
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float

    @property
    def operators(self) -> tuple[str, ...]:
        """The operators in it, with their domain where that is not ONNX's own; each once."""
        nodes = self.model.graph.node
        names = (
            item.op_type if item.domain in ("", "ai.onnx") else f"{item.domain}.{item.op_type}"
            for item in nodes
        )
        return tuple(dict.fromkeys(names))

    @property
    def outputs(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(item.name for item in self.model.graph.output)

    @property
    def opsets(self) -> tuple[tuple[str, int], ...]:
        """Domains and their versions."""
        return tuple(sorted((item.domain, item.version) for item in self.model.opset_import))

    @property
    def digest(self) -> str:
        """Of everything in the case."""
        found = hashlib.sha256(self.model.SerializeToString(deterministic=True))
        for array in _arrays(self.data):
            content = repr(array.tolist()).encode() if array.dtype.kind == "O" else array.tobytes()
            found.update(repr((array.dtype.str, array.shape)).encode() + content)
        found.update(repr((self.rtol, self.atol)).encode())
        return found.hexdigest()


def _arrays(data: Any) -> Iterator[np.ndarray]:
    if isinstance(data, (list, tuple)):
        for item in data:
            yield from _arrays(item)
    elif data is not None:
        yield np.ascontiguousarray(data)


@cache
def all_cases() -> tuple[OnnxCase, ...]:
    """Node cases first, then small models, each sorted by name."""
    return (*_node_cases(), *_model_cases())


def _node_cases() -> list[OnnxCase]:
    from onnx.backend.test.case.node import collect_testcases  # it makes them all on import: ten seconds

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return sorted(
        (OnnxCase(one.name, NODE, one.model, _plain(one.data_sets), one.rtol, one.atol) for one in found),
        key=lambda one: one.name,
    )


def _plain(data: Any) -> Any:
    """Data sets with arrays for tensors: what numpy has no type for comes as a message."""
    if isinstance(data, (list, tuple)):
        return [_plain(item) for item in data]
    return numpy_helper.to_array(data) if isinstance(data, onnx.TensorProto) else data


def _model_cases() -> Iterator[OnnxCase]:
    for kind in MODEL_KINDS:
        for one in sorted(onnx.backend.test.loader.load_model_tests(kind=kind), key=lambda one: one.name):
            folder = Path(one.model_dir)
            model = onnx.load(folder / "model.onnx")
            sets = sorted(folder.glob("test_data_set_*"))
            data = [
                (_read(item, "input", model.graph.input), _read(item, "output", model.graph.output))
                for item in sets
            ]
            yield OnnxCase(one.name, kind, model, data, one.rtol, one.atol)


def _read(folder: Path, what: str, infos: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    found = []
    for number, info in enumerate(infos):
        path = folder / f"{what}_{number}.pb"
        if path.exists():  # initializers are inputs, too, in old models
            found.append(_value(path.read_bytes(), info))
    return found


def _value(data: bytes, info: onnx.ValueInfoProto) -> Any:
    kind = info.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))
