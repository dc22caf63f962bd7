"""Read an ONNX model into a Graph.

Everything in a model is untrusted. What cannot be used ends in one error that says where and why; operators
that are not supported are collected and reported together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx
from onnx import AttributeProto

from compiler.core.diagnostics import BadInputError
from compiler.frontend.bodies import Body, function_body, has_body
from compiler.frontend.external import ExternalData
from compiler.frontend.functions import check_nodes, check_size, inlined
from compiler.frontend.proto import broken, first_line, read_model, schema_of
from compiler.frontend.refusals import Known, Refusal, Shape, UnsupportedModelError, why_unknown
from compiler.frontend.shapes import Bind, input_types
from compiler.frontend.signatures import apply_signature
from compiler.frontend.tensors import LIMIT_BYTES, element_type, tensor_array
from compiler.graph.attrs import Attrs, AttrValue
from compiler.graph.dtypes import Array, to_numpy
from compiler.graph.edit import Editor
from compiler.graph.ir import Graph, Node, TensorType, Value
from compiler.graph.op import InvalidError, OnnxNode, Op, RefusedError, UnsupportedError
from compiler.graph.ops import find_op

OLDEST_OPSET = 7
EAGER_FOLD_ELEMENTS = 1 << 16
"""The importer folds what may be arithmetic on shapes; larger constants wait for `fold_constants`."""

_TYPE_ATTRIBUTES = frozenset({"to", "dtype"})
_CONTROL_FLOW = frozenset({"If", "Loop", "Scan", "SequenceMap"})


def import_model(
    path: Path | str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    binds: Mapping[str, Bind] | None = None,
    external: ExternalData | None = None,
    dims: Mapping[str, int] | None = None,
) -> Graph:
    """The graph of the model in `path`.

    `shapes` fixes inputs' shapes by name, `dims` symbolic dimensions wherever they occur (one of both is
    needed for each), `binds` makes inputs constants; `external` opens external data, by default below the
    model's directory. Raises UsageError (dimensions left open, an unknown name) and BadInputError (the file,
    or what is in it).
    """
    path = Path(path)
    external = external or ExternalData(path.parent)
    return import_proto(read_model(path), external, shapes or {}, binds or {}, str(path), dims or {})


def import_proto(
    model: onnx.ModelProto,
    data: Path | ExternalData,
    shapes: Mapping[str, Sequence[int]],
    binds: Mapping[str, Bind],
    where: str = "model",
    dims: Mapping[str, int] = MappingProxyType({}),
) -> Graph:
    """The graph of a parsed model; `data` opens external data, or is the directory below which it lies."""
    if not all(isinstance(text, str) for text in _texts(model.graph)):
        raise broken(where, "a name in it is not UTF-8")
    check_size(model, where)
    external = data if isinstance(data, ExternalData) else ExternalData(data)
    try:
        return _Importer(inlined(model, where), external, where).run(shapes, binds, dims)
    except (UnicodeDecodeError, RecursionError) as error:
        raise broken(where, str(error)) from error


@dataclass(frozen=True, slots=True)
class NodeLinks:
    """A node of a model by its name and those of what it reads and writes.

    is_constant: it depends on constants alone.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    is_constant: bool


def node_links(path: Path) -> tuple[NodeLinks, ...]:
    """A model's nodes that compute something, in order; raises BadInputError for no model."""
    graph = inlined(read_model(path), str(path)).graph
    fixed = {tensor.name for tensor in graph.initializer}
    found: list[NodeLinks] = []
    for item in graph.node:
        reads, writes = (tuple(filter(None, names)) for names in (item.input, item.output))
        is_constant = item.op_type == "Constant" or (bool(reads) and fixed.issuperset(reads))
        fixed.update(writes if is_constant else ())
        if item.op_type != "Constant":
            found.append(NodeLinks(item.name, reads, writes, is_constant))
    return tuple(found)


def _texts(graph: onnx.GraphProto) -> Iterator[object]:
    """All names in a graph; protobuf hands out bytes where a text is not UTF-8."""
    for item in graph.node:
        yield from (item.name, item.op_type, item.domain, *item.input, *item.output)
        yield from (attr.name for attr in item.attribute)
    for tensor in graph.initializer:
        yield tensor.name
        yield from (text for entry in tensor.external_data for text in (entry.key, entry.value))
    for info in (*graph.input, *graph.output):
        yield info.name
        yield from (dim.dim_param for dim in info.type.tensor_type.shape.dim)


class _Importer:
    """State of one import: values by ONNX name, and what was refused so far."""

    def __init__(self, model: onnx.ModelProto, external: ExternalData, where: str) -> None:
        self.graph = model.graph
        self.opsets = _opsets(model, where)
        self.external = external
        self.where = where
        self.editor = Editor()
        self.values: dict[str, Value] = {}
        self.unknown: set[str] = set()
        self.refusals: list[Refusal] = []
        self.converted: Counter[str] = Counter()
        self.made: list[tuple[str, Node]] = []
        self.inlined = len(model.graph.node)

    def run(
        self, shapes: Mapping[str, Sequence[int]], binds: Mapping[str, Bind], dims: Mapping[str, int]
    ) -> Graph:
        self._constants()
        inputs = self._inputs(shapes, binds, dims)
        nodes = _in_order(self.graph, set(self.values), self.where)
        used = {name for item in nodes for name in item.input} | {item.name for item in self.graph.output}
        for number, item in enumerate(nodes):
            self._node(item, number, used)
        if self.refusals:
            raise UnsupportedModelError(self.where, self.refusals, self._known(inputs))
        return self._finish(inputs)

    def _constants(self) -> None:
        if self.graph.sparse_initializer:
            raise BadInputError("sparse initializers are not supported", where=self.where)
        for tensor in self.graph.initializer:
            if not tensor.name or tensor.name in self.values:
                raise broken(self.where, f"initializer {tensor.name!r} has no name of its own")
            self.values[tensor.name] = self.editor.constant(tensor_array(tensor, self.external), tensor.name)

    def _inputs(
        self, shapes: Mapping[str, Sequence[int]], binds: Mapping[str, Bind], dims: Mapping[str, int]
    ) -> list[Value]:
        """Initializers may be listed as inputs, too (ir_version 3): they are constants all the same."""
        free = [item for item in self.graph.input if item.name not in self.values]
        names = [item.name for item in free]
        if len(set(names)) != len(names) or "" in names:
            raise broken(self.where, "its inputs have no names of their own")
        types, bound = input_types(free, shapes, binds, dims, self.where)
        inputs = []
        for name, kind in types.items():
            if name in bound:
                self.values[name] = self.editor.constant(bound[name], name)
                continue
            inputs.append(self.editor.value(kind, name))
            empty = None if kind.size else np.empty(kind.shape, to_numpy(kind.dtype))
            self.values[name] = inputs[-1] if empty is None else self.editor.constant(empty, name)
        return inputs

    def _finish(self, inputs: list[Value]) -> Graph:
        names = [item.name for item in self.graph.output]
        missing = [name for name in names if name not in self.values]
        if missing or not names or len(set(names)) != len(names):
            raise broken(self.where, f"output {missing[0]!r} is never computed" if missing else "bad outputs")
        outputs = tuple(self.values[name] for name in names)
        return Graph(
            tuple(inputs),
            outputs,
            tuple(self.editor.nodes),
            self.editor.constants,
            tuple(value.name for value in inputs),
            tuple(names),
        )

    def _known(self, inputs: Sequence[Value]) -> Known:
        """What is to be said of a model with nodes that were refused."""
        ops = Counter(_op_text(item, _domain(item)) for item in self.graph.node)
        constants = self.editor.constants.values()
        flops: Counter[str] = Counter()
        for name, node in self.made:
            flops[name] += node.op.flops(node.info)
        return Known(
            inputs=tuple((value.name, str(value.type.dtype), value.type.shape) for value in inputs),
            outputs=tuple(self._output(item) for item in self.graph.output),
            ops=ops,
            flops=flops,
            unknown_nodes=ops.total() - self.converted.total(),
            parameters=sum(array.size for array in constants),
            parameter_bytes=sum(array.nbytes for array in constants),
        )

    def _output(self, item: onnx.ValueInfoProto) -> tuple[str, str, Shape]:
        """An output as it was computed, else as the model declares it."""
        value = self.values.get(item.name)
        if value is not None:
            return item.name, str(value.type.dtype), value.type.shape
        try:
            kind = str(element_type(item.type.tensor_type.elem_type))
        except ValueError:
            kind = "?"
        dims = item.type.tensor_type.shape.dim
        return item.name, kind, tuple(_extent(dim) for dim in dims)

    # ------------------------------------------------------------ one node

    def _node(self, item: onnx.NodeProto, number: int, used: AbstractSet[str]) -> None:
        name = item.name or f"(node {number}, makes {', '.join(item.output)[:80]})"
        domain = _domain(item)
        try:
            made = self._convert(item, name, used)
            self.converted[_op_text(item, domain)] += made is not None
        except UnsupportedError as error:
            self.refusals.append(Refusal(name, _op_text(item, domain), error.reason))
            made = None
        except InvalidError as error:
            raise BadInputError(
                f"node {name!r} ({_op_text(item, domain)}) is not valid", where=self.where, why=error.reason
            ) from error
        except (TypeError, LookupError, ValueError, ArithmeticError, MemoryError) as error:
            raise BadInputError(
                f"node {name!r} ({_op_text(item, domain)}) is not valid", where=self.where, why=_reason(error)
            ) from error
        self._define(item, made)

    def _define(self, item: onnx.NodeProto, made: Sequence[Value | None] | None) -> None:
        """Give what a node makes the names of its outputs; None stands for what is not known."""
        for at, output in enumerate(item.output):
            if not output:
                continue
            if output in self.values or output in self.unknown:
                raise broken(self.where, f"{output!r} is computed twice")
            value = made[at] if made is not None and at < len(made) else None
            if value is None:
                self.unknown.add(output)
            else:
                self.values[output] = value

    def _convert(
        self, item: onnx.NodeProto, name: str, used: AbstractSet[str]
    ) -> Sequence[Value | None] | None:
        """The values a node makes; None when it depends on a node that was refused."""
        domain = _domain(item)
        if domain == "" and item.op_type in _CONTROL_FLOW:
            raise UnsupportedError("control flow is not supported")
        if domain == "" and item.op_type == "Constant":
            return (self.editor.constant(_constant(self._attributes(item)), item.output[0]),)
        op = find_op(domain, item.op_type)
        if op is None and not has_body(item.op_type, domain, self.opsets.get(domain, 1)):
            raise UnsupportedError(why_unknown(domain, item.op_type))
        opset = self._opset(item, domain)
        if any(value in self.unknown for value in item.input):
            return None
        inputs = tuple(self._input(value) for value in item.input)
        if op is None:
            return self._composite(item, opset, inputs, name)
        try:
            return self._simple(op, opset, self._given(item, inputs, used), item, name)
        except UnsupportedError:
            with suppress(UnsupportedError):
                return self._composite(item, opset, inputs, name)
            raise

    def _given(
        self, item: onnx.NodeProto, inputs: tuple[Value | None, ...], used: AbstractSet[str]
    ) -> OnnxNode:
        known = tuple(None if value is None else self.editor.known(value) for value in inputs)
        outputs = tuple(bool(output) and output in used for output in item.output)
        return OnnxNode(self._attributes(item), inputs, known, outputs)

    def _simple(
        self, op: Op, opset: int, given: OnnxNode, item: onnx.NodeProto, name: str
    ) -> tuple[Value, ...]:
        """The values of a node whose operator has a record."""
        operands, canonical = apply_signature(op, opset, given)
        types = op.infer(tuple(value.type for value in operands), canonical)
        _check_types(types)
        folded = self._fold(op, operands, types, canonical)
        if folded is not None:
            return folded
        made = tuple(
            self.editor.value(kind, output) for kind, output in zip(types, item.output, strict=False)
        )
        made += tuple(self.editor.value(kind) for kind in types[len(made) :])
        node = Node(op, operands, made, canonical, (name,))
        self.editor.append(node)
        self.made.append((_op_text(item, _domain(item)), node))
        return made

    def _composite(
        self, item: onnx.NodeProto, opset: int, inputs: Sequence[Value | None], name: str
    ) -> Sequence[Value | None]:
        """What the body makes that ONNX itself gives the node; its nodes count as the node's."""
        domain = _domain(item)
        body = function_body(item, domain, opset, [None if value is None else value.type for value in inputs])
        if body is None:
            raise UnsupportedError(why_unknown(domain, item.op_type))
        self.inlined += len(body.nodes)
        check_nodes(self.inlined, self.where)
        first = len(self.made)
        made = self._inside(body, inputs, name)
        self.made[first:] = [(_op_text(item, domain), node) for _, node in self.made[first:]]
        return made

    def _inside(self, body: Body, inputs: Sequence[Value | None], name: str) -> Sequence[Value | None]:
        """What leaves a body, whose names are its own."""
        outside = self.values, self.unknown, self.opsets
        given = zip(body.inputs, inputs, strict=False)
        self.values, self.unknown = {inner: value for inner, value in given if value is not None}, set()
        self.opsets = {**self.opsets, **body.opsets}
        try:
            for item in body.nodes:
                self._part(item, name, body.used)
            return [self.values.get(output) for output in body.outputs]
        finally:
            self.values, self.unknown, self.opsets = outside

    def _part(self, item: onnx.NodeProto, name: str, used: AbstractSet[str]) -> None:
        """One node of a body; what is wrong with it names it."""
        try:
            self._define(item, self._convert(item, name, used))
        except RefusedError as error:
            raise type(error)(f"its {_op_text(item, _domain(item))}: {error.reason}") from error

    def _opset(self, item: onnx.NodeProto, domain: str) -> int:
        """The version of the node's domain; raises InvalidError where it breaks ONNX's schema."""
        opset = self.opsets.get(domain)
        if opset is None:
            raise InvalidError(f"the model imports no version of domain {domain or 'ai.onnx'}")
        schema = schema_of(item.op_type, domain, opset)
        if schema is not None and not schema.min_input <= len(item.input) <= schema.max_input:
            raise InvalidError(f"it has {len(item.input)} inputs, which {item.op_type} cannot have")
        if schema is not None and not schema.min_output <= len(item.output) <= schema.max_output:
            raise InvalidError(f"it has {len(item.output)} outputs, which {item.op_type} cannot have")
        return opset

    def _fold(
        self, op: Op, operands: Sequence[Value], types: Sequence[TensorType], attrs: Attrs
    ) -> tuple[Value, ...] | None:
        if operands and sum(kind.size for kind in types) > EAGER_FOLD_ELEMENTS:
            return None
        return self.editor.fold(op, operands, attrs, types)

    def _input(self, name: str) -> Value | None:
        if not name:
            return None
        if name not in self.values:
            raise InvalidError(f"its input {name!r} is computed nowhere")
        return self.values[name]

    def _attributes(self, item: onnx.NodeProto) -> dict[str, AttrValue | Array]:
        return {attr.name: self._attribute(attr) for attr in item.attribute}

    def _attribute(self, attr: AttributeProto) -> AttrValue | Array:
        kind = attr.type
        if attr.ref_attr_name:
            raise InvalidError(
                f"attribute {attr.name} refers to {attr.ref_attr_name!r} outside of a function"
            )
        if kind == AttributeProto.INT:
            return element_type(attr.i) if attr.name in _TYPE_ATTRIBUTES else attr.i
        if kind == AttributeProto.TENSOR:
            return tensor_array(attr.t, self.external)
        found = _PLAIN.get(kind)
        if found is None:
            kinds = AttributeProto.AttributeType
            text = kinds.Name(kind) if kind in kinds.values() else str(kind)
            raise UnsupportedError(f"attribute {attr.name} of kind {text} is not supported")
        return found(attr)


_PLAIN: Mapping[int, Callable[[AttributeProto], AttrValue]] = {
    AttributeProto.FLOAT: lambda attr: attr.f,
    AttributeProto.STRING: lambda attr: attr.s.decode(),
    AttributeProto.INTS: lambda attr: tuple(attr.ints),
    AttributeProto.FLOATS: lambda attr: tuple(attr.floats),
}


def _constant(attrs: Mapping[str, AttrValue | Array]) -> Array:
    for name, value in attrs.items():
        if name == "value" and isinstance(value, np.ndarray):
            return value
        if name in ("value_int", "value_ints"):
            return np.asarray(value, np.int64)
        if name in ("value_float", "value_floats"):
            return np.asarray(value, np.float32)
    raise UnsupportedError(f"Constant with {', '.join(attrs) or 'no value'} is not supported")


def _extent(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    """An extent as it is declared: a number, a symbol, or "?" for neither."""
    return dim.dim_value if dim.WhichOneof("value") == "dim_value" else dim.dim_param or "?"


def _check_types(types: Iterable[TensorType]) -> None:
    for kind in types:
        if kind.bytes > LIMIT_BYTES:
            raise InvalidError(f"the result {kind} would be larger than {LIMIT_BYTES >> 30} GiB")


def _reason(error: BaseException) -> str:
    if isinstance(error, KeyError):
        return f"attribute {error.args[0]} is missing"
    return first_line(error)


def _domain(item: onnx.NodeProto | onnx.OperatorSetIdProto) -> str:
    return "" if item.domain == "ai.onnx" else item.domain


def _op_text(item: onnx.NodeProto, domain: str) -> str:
    return f"{domain}.{item.op_type}" if domain else item.op_type


def _opsets(model: onnx.ModelProto, where: str) -> dict[str, int]:
    found = {_domain(item): item.version for item in model.opset_import}
    if not found and model.ir_version < 3:
        found = {"": 1}
    newest, opset = onnx.defs.onnx_opset_version(), found.get("", OLDEST_OPSET)
    if opset < OLDEST_OPSET or opset > newest:
        raise BadInputError(
            f"opset {opset} is not supported",
            where=where,
            why=f"opsets {OLDEST_OPSET} to {newest} are",
            hint="convert the model with onnx.version_converter.convert_version",
        )
    return found


def _in_order(graph: onnx.GraphProto, defined: set[str], where: str) -> list[onnx.NodeProto]:
    """The nodes, each after those it reads from; raises BadInputError for a cycle."""
    nodes = list(graph.node)
    if _is_ordered(nodes, defined):
        return nodes
    maker = {output: at for at, item in enumerate(nodes) for output in item.output if output}
    sorter = TopologicalSorter(dict.fromkeys(range(len(nodes)), ()))  # those that are ready in their order
    for at, item in enumerate(nodes):
        sorter.add(at, *{maker[name] for name in item.input if name in maker})
    try:
        return [nodes[at] for at in sorter.static_order()]
    except CycleError as error:
        stuck = min(error.args[1])
        raise broken(where, f"node {nodes[stuck].name or stuck!r} depends on its own result") from error


def _is_ordered(nodes: Sequence[onnx.NodeProto], defined: set[str]) -> bool:
    seen = set(defined)
    for item in nodes:
        if any(name and name not in seen for name in item.input):
            return False
        seen.update(item.output)
    return True
