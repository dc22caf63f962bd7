"""Class labels that are strings, as numbers: a library computes their numbers, its manifest has the strings.

Classifiers, encoders and constants bring strings into a model; what follows only moves them about, or asks
whether two are equal. So each string of a model gets one number, in the order in which they are first met:
in the classifier's list, where there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np
import onnx
from onnx import AttributeProto, NodeProto, TensorProto, helper, numpy_helper

from compiler.frontend.subgraphs import in_order, subgraphs

Labels = Mapping[str, tuple[str, ...]]
"""The strings that the numbers of an output stand for, by the output's name."""

_NONE: Labels = MappingProxyType({})
_ML = "ai.onnx.ml"

_MOVING: Mapping[str, Callable[[Sequence[str]], Sequence[str]]] = MappingProxyType(
    dict.fromkeys(
        ("Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Transpose", "Gather", "GatherElements",
         "GatherND", "Slice", "Split", "Expand", "Tile", "Compress", "ArrayFeatureExtractor"),
        lambda inputs: inputs[:1],
    )
    | {"Concat": lambda inputs: inputs, "Where": lambda inputs: inputs[1:]}
)  # fmt: skip
"""Operators that make strings of strings, by name: which of their inputs these are."""

_CLASSIFIERS = {"TreeEnsembleClassifier": "classlabels_int64s", "LinearClassifier": "classlabels_ints",
                "SVMClassifier": "classlabels_ints"}  # fmt: skip


class _OtherUseError(Exception):
    """Strings are more than labels in this model."""


def number_labels(model: onnx.ModelProto, where: str) -> tuple[onnx.ModelProto, Labels]:
    """The model with numbers for strings, and the strings of each output that were such.

    The model itself, where it has no strings, or computes with them: then the importer says so. Raises
    BadInputError, naming `where`, for nodes that read from each other.
    """
    if not any(_has_strings(item) for item in model.graph.node) and not any(_texts_in(model.graph)):
        return model, _NONE
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    try:
        return copy, _Numbering(copy.graph, where).run()
    except (_OtherUseError, UnicodeDecodeError):
        return model, _NONE


def map_keys(model: onnx.ModelProto) -> Mapping[str, tuple[int | str, ...]]:
    """The labels that maps of scores have for keys, in the order of a library's columns; by output."""
    found: dict[str, tuple[int | str, ...]] = {}
    for item in model.graph.node:
        if item.domain == _ML and item.op_type == "ZipMap":
            for attr in item.attribute:
                found[item.output[0]] = tuple(text.decode() for text in attr.strings) or tuple(attr.ints)
    return found


def _texts_in(graph: onnx.GraphProto) -> Iterator[TensorProto]:
    return (one for one in graph.initializer if one.data_type == TensorProto.STRING)


def _has_strings(item: NodeProto) -> bool:
    texts = (AttributeProto.STRINGS, AttributeProto.TENSOR)
    return any(
        attr.type in texts and (attr.strings or attr.t.data_type == TensorProto.STRING)
        for attr in item.attribute
    )


class _Numbering:
    """State of one rewrite: the number of each string, and the names of what was a tensor of strings."""

    def __init__(self, graph: onnx.GraphProto, where: str) -> None:
        self.graph = graph
        given = {one.name for one in (*graph.input, *graph.initializer)}
        self.nodes = in_order(graph, given, where)
        self.numbers: dict[str, int] = {}
        self.numbered: set[str] = set()

    def run(self) -> Labels:
        for item in self.nodes:
            self._meet_classes(item)
        for tensor in _texts_in(self.graph):
            self._replace(tensor)
            self.numbered.add(tensor.name)
        for item in self.nodes:
            self._node(item)
        return self._outputs()

    def _meet_classes(self, item: NodeProto) -> None:
        if item.domain == _ML and item.op_type in _CLASSIFIERS:
            for attr in item.attribute:
                self._all_of(attr.strings if attr.name == "classlabels_strings" else ())

    def _all_of(self, texts: Iterable[bytes]) -> list[int]:
        return [self.numbers.setdefault(text.decode(), len(self.numbers)) for text in texts]

    def _replace(self, tensor: TensorProto) -> None:
        """Numbers in the place of a tensor's strings."""
        found = np.asarray(self._all_of(tensor.string_data), np.int64)
        if found.size != np.prod(tensor.dims, dtype=np.int64):
            raise _OtherUseError
        tensor.CopyFrom(numpy_helper.from_array(found.reshape(tuple(tensor.dims)), tensor.name))

    def _node(self, item: NodeProto) -> None:
        if item.domain == _ML and item.op_type in _CLASSIFIERS:
            self._classifier(item)
        elif item.domain == _ML and item.op_type == "LabelEncoder":
            self._encoder(item)
        elif item.domain == "" and item.op_type == "Constant":
            self._constant(item)
        elif any(name in self.numbered for name in item.input):
            self._reader(item)
        if any(self._reads_numbers(graph) for graph in subgraphs(item)):
            raise _OtherUseError

    def _reads_numbers(self, graph: onnx.GraphProto) -> bool:
        return any(name in self.numbered for item in graph.node for name in item.input) or any(
            self._reads_numbers(inner) for item in graph.node for inner in subgraphs(item)
        )

    def _classifier(self, item: NodeProto) -> None:
        """The first output has the numbers of the labels."""
        given = _take(item, "classlabels_strings")
        if given is None or not given.strings:
            return
        numbers = self._all_of(given.strings)
        _take(item, _CLASSIFIERS[item.op_type])
        item.attribute.append(helper.make_attribute(_CLASSIFIERS[item.op_type], numbers))
        self.numbered.add(item.output[0])

    def _encoder(self, item: NodeProto) -> None:
        """Keys are the numbers of strings where the input has such; so are values, and what else it makes."""
        if item.input[0] in self.numbered:
            self._numbers_of(item, "keys")
        if self._numbers_of(item, "values"):
            default = _take(item, "default_string")
            (number,) = self._all_of([default.s if default is not None else b"_Unused"])
            _take(item, "default_int64")
            item.attribute.append(helper.make_attribute("default_int64", number))
            self.numbered.add(item.output[0])

    def _numbers_of(self, item: NodeProto, what: str) -> bool:
        """Numbers for an encoder's strings, if it has them."""
        texts = _take(item, f"{what}_strings")
        if texts is not None and texts.strings:
            item.attribute.append(helper.make_attribute(f"{what}_int64s", self._all_of(texts.strings)))
            return True
        for attr in item.attribute:
            if attr.name in (f"{what}_tensor", "default_tensor") and attr.t.data_type == TensorProto.STRING:
                raise _OtherUseError
        return False

    def _constant(self, item: NodeProto) -> None:
        for attr in item.attribute:
            if attr.name == "value" and attr.t.data_type == TensorProto.STRING:
                self._replace(attr.t)
                self.numbered.add(item.output[0])
            elif attr.name in ("value_string", "value_strings"):
                numbers = self._all_of(attr.strings or [attr.s])
                found = np.asarray(numbers if attr.name == "value_strings" else numbers[0], np.int64)
                attr.CopyFrom(helper.make_attribute("value", numpy_helper.from_array(found)))
                self.numbered.add(item.output[0])

    def _reader(self, item: NodeProto) -> None:
        """A node that reads numbers of strings."""
        to_text = any(attr.name == "to" and attr.i == TensorProto.STRING for attr in item.attribute)
        if item.op_type == "Cast" and to_text:
            item.op_type = "Identity"
            del item.attribute[:]
        moving = _MOVING.get(item.op_type)
        here = [name for name in item.input if name in self.numbered]
        if item.op_type == "Equal" and len(here) == len(item.input):
            return
        if moving is None or here != list(moving(item.input)):
            raise _OtherUseError
        self.numbered.update(item.output)

    def _outputs(self) -> Labels:
        found = tuple(self.numbers)
        for info in (*self.graph.output, *self.graph.value_info):
            kind = info.type.tensor_type
            if kind.elem_type == TensorProto.STRING:
                if info.name not in self.numbered:
                    raise _OtherUseError
                kind.elem_type = TensorProto.INT64
        return {info.name: found for info in self.graph.output if info.name in self.numbered}


def _take(item: NodeProto, name: str) -> AttributeProto | None:
    """An attribute of a node, which has it no more."""
    for at, attr in enumerate(item.attribute):
        if attr.name == name:
            found = AttributeProto()
            found.CopyFrom(attr)
            del item.attribute[at]
            return found
    return None
