"""Writes the nodes of a composite operator's body."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from compiler.core.types import F32, I64
from compiler.frontend.tensors import element_code
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.ir import TensorType
from compiler.graph.op import InvalidError, UnsupportedError


class BodyWriter:
    """A node, and the nodes that stand for it: of ONNX's own domain, in its newest version.

    Values are names; "" is an input that was left out. `results`: what the model declares of the types of
    the outputs. `declared`: types of values, where operands that only a run knows decide them.
    """

    def __init__(
        self,
        item: onnx.NodeProto,
        opset: int,
        types: Sequence[TensorType | None],
        known: Sequence[Array | None],
        results: Sequence[TensorType | None] = (),
    ) -> None:
        self.op, self.opset = item.op_type, opset
        self.declared: dict[str, TensorType] = {}
        self.nodes: list[onnx.NodeProto] = []
        self.inputs = tuple(f"in{at}" if kind is not None else "" for at, kind in enumerate(types))
        self._types, self._known, self._results = types, known, results
        self._attrs: Mapping[str, Any] = {one.name: helper.get_attribute_value(one) for one in item.attribute}
        self._read: set[str] = set()

    # ------------------------------------------------------------ what the node says

    def has(self, at: int) -> bool:
        """Whether input `at` is given."""
        return at < len(self.inputs) and bool(self.inputs[at])

    def input(self, at: int) -> str:
        """The name of input `at`, "" where it is left out."""
        return self.inputs[at] if at < len(self.inputs) else ""

    def type(self, at: int) -> TensorType:
        """The type of an input that is given."""
        kind = self._types[at] if at < len(self._types) else None
        if kind is None:
            raise UnsupportedError(f"without its input {at} it is not supported")
        return kind

    def known(self, at: int, what: str) -> Array:
        """The content of an input, which must be known."""
        array = self.content(at)
        if array is None:
            raise UnsupportedError(
                f"its input `{what}` must be known at compile time; if a model input carries it, give --bind"
            )
        return array

    def content(self, at: int) -> Array | None:
        """The content of an input, None where only a run knows it."""
        return self._known[at] if at < len(self._known) else None

    def result(self, rank: int) -> TensorType:
        """The first output's type as the model declares it; raises UnsupportedError where it does not."""
        found = self._results[0] if self._results else None
        if found is None:
            raise UnsupportedError(
                "its shape depends on the content of inputs, and the model does not declare it; "
                "if a model input carries the content, give --bind"
            )
        if found.rank != rank:
            raise InvalidError(f"the model declares {found} for a result of {rank} dimensions")
        return found

    def checked(self, value: str, extents: Sequence[int]) -> tuple[int, ...]:
        """`extents`, which a run compares with those in `value`."""
        given = self.emit("Cast", value, to=element_code(I64))
        filled = self.emit("ConstantOfShape", self.emit("Reshape", given, self.constant([-1])))
        self.declared[filled] = TensorType(F32, tuple(extents))
        return tuple(extents)

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute; text as str. Raises UnsupportedError where it is needed and missing."""
        self._read.add(name)
        found = self._attrs.get(name, default)
        if found is None:
            raise UnsupportedError(f"without attribute {name} it is not supported")
        return found.decode() if isinstance(found, bytes) else found

    def given(self, *names: str) -> dict[str, Any]:
        """Those of these attributes that the node has."""
        self._read.update(names)
        return {name: self._attrs[name] for name in names if name in self._attrs}

    def attributes(self) -> Mapping[str, Any]:
        """All that the node has."""
        self._read.update(self._attrs)
        return self._attrs

    def refuse(self, **usual: Any) -> None:
        """Raise UnsupportedError for an attribute with another value than its usual one."""
        for name, value in usual.items():
            found = self.attribute(name, value)
            if found != value:
                raise UnsupportedError(f"{name}={found} is not supported, only {value}")

    def most_inputs(self, count: int) -> None:
        """Raise UnsupportedError where the node has more than its first `count` inputs."""
        for at, name in enumerate(self.inputs[count:], count):
            if name:
                raise UnsupportedError(f"with its input {at} it is not supported")

    def check_attributes(self) -> None:
        """Raise UnsupportedError for attributes that nobody asked for."""
        if unknown := self._attrs.keys() - self._read:
            raise UnsupportedError(f"attribute {', '.join(sorted(unknown))} is not supported")

    # ------------------------------------------------------------ what stands for it

    def emit(self, op: str, *inputs: str, domain: str = "", **attrs: Any) -> str:
        """Add a node of one output, and return its name."""
        return self.emit_all(op, 1, *inputs, domain=domain, **attrs)[0]

    def emit_all(
        self, op: str, outputs: int, *inputs: str, domain: str = "", **attrs: Any
    ) -> tuple[str, ...]:
        """Add a node, and return the names of its outputs."""
        made = tuple(f"{len(self.nodes)}_{at}" for at in range(outputs))
        self.nodes.append(helper.make_node(op, list(inputs), list(made), domain=domain, **attrs))
        return made

    def constant(self, value: Any, like: TensorType | None = None) -> str:
        """A constant, of the element type of `like` if that is given, else of integers."""
        kind = np.dtype(np.int64) if like is None else to_numpy(like.dtype)
        value = list(value) if isinstance(value, range) else value
        return self.emit("Constant", value=numpy_helper.from_array(np.asarray(value, kind)))

    def scaled(self, value: str, factor: float, like: TensorType) -> str:
        """`value` times a number."""
        return value if factor == 1 else self.emit("Mul", value, self.constant(factor, like))

    def sum(self, value: str, more: str) -> str:
        """`value`, with `more` added where that is given."""
        return self.emit("Add", value, more) if more else value

    def sum_given(self, value: str, more: str) -> str:
        """The sum of those that are given, "" for none."""
        return self.sum(value, more) if value else more

    def cast(self, value: str, kind: TensorType) -> str:
        """`value` with another element type."""
        return self.emit("Cast", value, to=element_code(kind.dtype))


Write = Callable[[BodyWriter], "tuple[str, ...]"]
"""Writes a body and returns the names of the outputs, "" for what it does not make; () for no body."""
