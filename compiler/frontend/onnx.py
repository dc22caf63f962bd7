"""Read an ONNX model into a Graph.

Everything in a model is untrusted. What cannot be used ends in one error that says where and why; operators
that are not supported are collected and reported together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import onnx

from compiler.core.diagnostics import BadInputError
from compiler.frontend.attributes import Given, constant_array, plain_attributes
from compiler.frontend.bodies import Body, body_of, has_body
from compiler.frontend.control_flow import CONTROL_FLOW
from compiler.frontend.counted import Counting, Supposed, declared_symbols
from compiler.frontend.declared import Declared, check_declared, declared_types
from compiler.frontend.external import ExternalData
from compiler.frontend.functions import NodeCount, check_size, inlined
from compiler.frontend.item_node import Convert, ItemNode, Subgraph
from compiler.frontend.labels import number_labels
from compiler.frontend.old_opsets import FIRST_OF_RECORDS, renewed
from compiler.frontend.proto import broken, first_line, read_model, schema_of
from compiler.frontend.refusals import Known, Refusal, Shape, UnsupportedModelError, why_unknown
from compiler.frontend.scope import Item, NameScope, item_text
from compiler.frontend.sequences import ON_ANY_ITEM, SEQUENCES
from compiler.frontend.shapes import Bind, input_types
from compiler.frontend.signatures import apply_signature, computed_at_run
from compiler.frontend.subgraphs import count_nodes, in_order, reads, wanted_names
from compiler.frontend.tensors import check_stored_types, element_type, tensor_array, why_too_large
from compiler.graph.attrs import Attrs
from compiler.graph.dtypes import to_numpy
from compiler.graph.edit import Editor
from compiler.graph.ir import Graph, Node, TensorType, Value
from compiler.graph.op import InvalidError, OnnxNode, Op, RefusedError, UnsupportedError
from compiler.graph.ops import find_op

OLDEST_OPSET = 1
EAGER_FOLD_ELEMENTS = 1 << 16
"""The importer folds what may be arithmetic on shapes; larger constants wait for `fold_constants`."""

_ON_ITEMS: Mapping[str, Convert] = MappingProxyType({**CONTROL_FLOW, **SEQUENCES})
"""Operators that are no operators of the graph: what they make is decided while the model is imported."""


def import_model(
    path: Path | str,
    shapes: Mapping[str, Sequence[int]] | None = None,
    binds: Mapping[str, Bind] | None = None,
    external: ExternalData | None = None,
    dims: Mapping[str, int] | None = None,
    supposed: Supposed | None = None,
) -> Graph:
    """The graph of the model in `path`.

    `shapes` fixes inputs' shapes by name, `dims` symbolic dimensions wherever they occur (one of both is
    needed for each), `binds` makes inputs constants; `external` opens external data, by default below the
    model's directory; `supposed` says what a run finds where that decides over shapes. Raises UsageError
    (dimensions left open, an unknown name) and BadInputError (the file, or what is in it).
    """
    path = Path(path)
    external = external or ExternalData(path.parent)
    proto = read_model(path)
    return import_proto(proto, external, shapes or {}, binds or {}, str(path), dims or {}, supposed)


def import_proto(
    model: onnx.ModelProto,
    data: Path | ExternalData,
    shapes: Mapping[str, Sequence[int]],
    binds: Mapping[str, Bind],
    where: str = "model",
    dims: Mapping[str, int] = MappingProxyType({}),
    supposed: Supposed | None = None,
) -> Graph:
    """The graph of a parsed model; `data` opens external data, or is the directory below which it lies."""
    size = check_size(model, where)
    external = data if isinstance(data, ExternalData) else ExternalData(data)
    try:
        plain, labels = number_labels(inlined(model, where), where)
        graph = _Importer(plain, external, where, size, supposed or Supposed()).run(shapes, binds, dims)
        return replace(graph, labels=labels)
    except (UnicodeDecodeError, RecursionError) as error:
        raise broken(where, str(error)) from error


class _Importer:
    """State of one import: what ONNX's names stand for, and what was refused so far.

    size: nodes of the model, with those of function bodies and of each round of a loop. inside: names of the
    nodes whose subgraphs are around. is_function: whether that is the body of a composite operator.
    """

    def __init__(
        self, model: onnx.ModelProto, external: ExternalData, where: str, size: NodeCount, supposed: Supposed
    ) -> None:
        self.graph = model.graph
        self.opsets = _opsets(model, where)
        self.external = external
        self.where = where
        self.editor = Editor()
        self.values = NameScope()
        self.inside: tuple[str, ...] = ()
        self.is_function = False
        self.refusals: list[Refusal] = []
        self.converted: Counter[str] = Counter()
        self.made: list[tuple[str, Node]] = []
        self.declared = declared_types(self.graph)
        self.counting = Counting(self.editor, supposed, declared_symbols(self.graph))
        self.checks: dict[Value, str] = {}
        self.only_where: Value | None = None
        self.size = size

    def run(
        self, shapes: Mapping[str, Sequence[int]], binds: Mapping[str, Bind], dims: Mapping[str, int]
    ) -> Graph:
        for name, constant in self._constants(self.graph).items():
            self.values.define(name, constant)
        inputs = self._inputs(shapes, binds, dims)
        nodes = in_order(self.graph, self.values, self.where)
        used = wanted_names(self.graph)
        for number, item in enumerate(nodes):
            self.converted[_op_text(item, _domain(item))] += self._node(item, number, used)
        if self.refusals:
            raise UnsupportedModelError(self.where, self.refusals, self._known(inputs))
        return self._finish(inputs)

    def _constants(self, graph: onnx.GraphProto) -> dict[str, Value]:
        if graph.sparse_initializer:
            raise BadInputError("sparse initializers are not supported", where=self.where)
        found: dict[str, Value] = {}
        for tensor in graph.initializer:
            if not tensor.name or tensor.name in found:
                raise broken(self.where, f"initializer {tensor.name!r} has no name of its own")
            found[tensor.name] = self.editor.constant(tensor_array(tensor, self.external), tensor.name)
        return found

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
                self.values.define(name, self.editor.constant(bound[name], name))
                continue
            inputs.append(self.editor.value(kind, name))
            empty = None if kind.size else np.empty(kind.shape, to_numpy(kind.dtype))
            self.values.define(name, inputs[-1] if empty is None else self.editor.constant(empty, name))
        return inputs

    def _finish(self, inputs: list[Value]) -> Graph:
        names = [item.name for item in self.graph.output]
        missing = [name for name in names if name not in self.values]
        if missing or not names or len(set(names)) != len(names):
            raise broken(self.where, f"output {missing[0]!r} is never computed" if missing else "bad outputs")
        outputs = tuple(self._result(name) for name in names)
        return Graph(
            tuple(inputs),
            (*outputs, *self.checks),
            tuple(self.editor.nodes),
            self.editor.constants,
            tuple(value.name for value in inputs),
            (*names, *self.checks.values()),
            checks=len(self.checks),
            folded=self.editor.folded,
        )

    def _result(self, name: str) -> Value:
        """An output of the model."""
        item = self.values[name]
        if not isinstance(item, Value):
            why = f"it is {'not known' if item is None else item_text(item)}; only tensors can be outputs"
            raise BadInputError(f"output {name!r} cannot be used", where=self.where, why=why)
        return item

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
        if isinstance(value, Value):
            return item.name, str(value.type.dtype), value.type.shape
        try:
            kind = str(element_type(item.type.tensor_type.elem_type))
        except ValueError:
            kind = "?"
        dims = item.type.tensor_type.shape.dim
        return item.name, kind, tuple(_extent(dim) for dim in dims)

    # ------------------------------------------------------------ one node

    def _node(self, item: onnx.NodeProto, number: int, used: AbstractSet[str]) -> bool:
        """Convert a node; whether it could be."""
        name = item.name or f"(node {number}, makes {', '.join(item.output)[:80]})"
        what = f"node {name!r} ({_op_text(item, _domain(item))}) is not valid"
        made: Sequence[Item | None] | None = None
        try:
            try:
                made = self._convert(item, name, used)
            except UnsupportedError as error:
                self.refusals.append(Refusal(name, _op_text(item, _domain(item)), error.reason))
            self._define(item, made)
        except InvalidError as error:
            raise BadInputError(what, where=self.where, why=error.reason) from error
        except (TypeError, LookupError, ValueError, ArithmeticError, MemoryError) as error:
            raise BadInputError(what, where=self.where, why=_reason(error)) from error
        return made is not None

    def _define(self, item: onnx.NodeProto, made: Sequence[Item | None] | None) -> None:
        """Give what a node makes the names of its outputs; None stands for what is not known."""
        for at, output in enumerate(item.output):
            if output:
                self.values.define(output, made[at] if made is not None and at < len(made) else None)

    def _convert(
        self, item: onnx.NodeProto, name: str, used: AbstractSet[str]
    ) -> Sequence[Item | None] | None:
        """What a node makes; None when it depends on a node that was refused."""
        domain = _domain(item)
        convert = self._on_items(item, domain)
        if convert is not None:
            return self._convert_items(convert, item, domain, name)
        if domain == "" and item.op_type == "Constant":
            return (self.editor.constant(constant_array(self._attributes(item)), item.output[0]),)
        op = find_op(domain, item.op_type)
        if op is None and not has_body(item.op_type, domain, self.opsets.get(domain, 1)):
            raise UnsupportedError(why_unknown(domain, item.op_type))
        opset = self._opset(item, domain)
        if any(self.values.is_refused(value) for value in item.input):
            return None
        inputs = tuple(self._tensor(value) for value in item.input)
        if op is None:
            return self._composite(item, opset, inputs, name)
        try:
            given = self._given(item, inputs, used)
            if domain or opset >= FIRST_OF_RECORDS:
                return self._simple(op, opset, given, item, name)
            self.editor.origin = (*self.inside, name)
            given = renewed(self.editor, op.name, opset, given)
            return self._simple(op, FIRST_OF_RECORDS, given, item, name)
        except UnsupportedError:
            with suppress(UnsupportedError):
                return self._composite(item, opset, inputs, name)
            raise

    def _given(
        self, item: onnx.NodeProto, inputs: tuple[Value | None, ...], used: AbstractSet[str]
    ) -> OnnxNode:
        known = tuple(None if value is None else self.editor.known(value) for value in inputs)
        outputs = tuple(bool(output) and output in used for output in item.output)
        declared = tuple(self.declared.get(output) for output in item.output)
        return OnnxNode(self._attributes(item), inputs, known, outputs, declared, self.editor.place)

    def _simple(
        self, op: Op, opset: int, given: OnnxNode, item: onnx.NodeProto, name: str
    ) -> tuple[Value, ...]:
        """The values of a node whose operator has a record."""
        kinds = [None if value is None else value.type.dtype for value in given.inputs]
        check_stored_types(schema_of(op.name, op.domain, opset), kinds)
        self.editor.origin = (*self.inside, name)
        computed = computed_at_run(self.editor, op, opset, given)
        if computed is not None:
            if computed.agrees is not None:
                self.check(computed.agrees, check_declared(computed, given.declared, name, op.name))
            results = self.counting.parts(computed, given, item.output, item.name, op.name)
            ends = zip(results, item.output, strict=False)
            return tuple(self.editor.rename(value, output) for value, output in ends)
        operands, canonical = apply_signature(op, opset, given)
        types = op.infer(tuple(value.type for value in operands), canonical)
        _check_types(types)
        folded = self._fold(op, operands, types, canonical)
        if folded is not None:
            return tuple(map(self.editor.rename, folded, item.output))
        made = tuple(
            self.editor.value(kind, output) for kind, output in zip(types, item.output, strict=False)
        )
        made += tuple(self.editor.value(kind) for kind in types[len(made) :])
        node = Node(op, operands, made, canonical, (*self.inside, name))
        self.editor.append(node)
        self.made.append((_op_text(item, _domain(item)), node))
        return self.counting.clipped(made, given, op.name)

    def _composite(
        self, item: onnx.NodeProto, opset: int, inputs: Sequence[Value | None], name: str
    ) -> Sequence[Item | None]:
        """What the body makes that ONNX itself gives the node; its nodes count as the node's."""
        domain = _domain(item)
        types = [None if value is None else value.type for value in inputs]
        known = [None if value is None else self.editor.known(value) for value in inputs]
        results = [self.declared.get(output) for output in item.output]
        body = body_of(item, domain, opset, types, known, results)
        if body is None:
            raise UnsupportedError(why_unknown(domain, item.op_type))
        self.size.add(len(body.nodes))
        first = len(self.made)
        declared = {**body.declared, **dict(zip(body.outputs, results, strict=False))}
        made = self._inside(body, inputs, declared, name)
        self.made[first:] = [(_op_text(item, domain), node) for _, node in self.made[first:]]
        return made

    def _inside(
        self, body: Body, inputs: Sequence[Value | None], declared: Declared, name: str
    ) -> Sequence[Item | None]:
        """What leaves a body, whose names are its own; `declared`: types of what leaves it."""
        outside = self.values, self.is_function, self.opsets, self.declared
        self.values, self.is_function, self.declared = NameScope(), True, declared
        self.opsets = {**self.opsets, **body.opsets}
        try:
            for inner, value in zip(body.inputs, inputs, strict=False):
                if value is not None:
                    self.values.define(inner, value)
            for item in body.nodes:
                self._part(item, name, body.used)
            return [self.values.get(output) for output in body.outputs]
        finally:
            self.values, self.is_function, self.opsets, self.declared = outside

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
        is_large = bool(operands) and sum(kind.size for kind in types) > EAGER_FOLD_ELEMENTS
        return None if is_large else self.editor.fold(op, operands, attrs, types)

    def _input(self, name: str) -> Item | None:
        if not name:
            return None
        if name not in self.values:
            raise InvalidError(f"its input {name!r} is computed nowhere")
        return self.values[name]

    def _tensor(self, name: str) -> Value | None:
        item = self._input(name)
        if item is not None and not isinstance(item, Value):
            raise InvalidError(f"its input {name!r} is {item_text(item)}, not a tensor")
        return item

    def _attributes(self, item: onnx.NodeProto) -> Given:
        return plain_attributes(item.attribute, self.external)

    # ------------------------------------------------------------ control flow and sequences

    def _on_items(self, item: onnx.NodeProto, domain: str) -> Convert | None:
        """What converts a node that is no operator of the graph."""
        if domain:
            return None
        given = [self.values.get(name) for name in item.input]
        if all(one is None or isinstance(one, Value) for one in given):
            return _ON_ITEMS.get(item.op_type)
        return _ON_ITEMS.get(item.op_type) or ON_ANY_ITEM.get(item.op_type)

    def _convert_items(
        self, convert: Convert, item: onnx.NodeProto, domain: str, name: str
    ) -> tuple[Item, ...] | None:
        opset = self._opset(item, domain)
        if any(self.values.is_refused(value) for value in reads(item)):
            return None
        plain = (attr for attr in item.attribute if attr.type not in (attr.GRAPH, attr.TYPE_PROTO))
        attrs = plain_attributes(plain, self.external)
        self.editor.origin = (*self.inside, name)
        declared = tuple(self.declared.get(output) for output in item.output)
        return convert(self, ItemNode(item, opset, attrs, tuple(map(self._input, item.input)), declared))

    def open_subgraph(self, graph: onnx.GraphProto) -> Subgraph:
        """A subgraph of the node that is converted, made ready."""
        constants, names = self._constants(graph), self.values.new_child()
        for name in {*constants, *(info.name for info in graph.input)}:
            names.define(name, None)
        nodes = in_order(graph, names, self.where)
        return Subgraph(graph, nodes, frozenset(wanted_names(graph)), constants)

    def check(self, agrees: Value, why: str) -> None:
        """Let a run fail with `why` where an i32 is 0, and what is imported now counts."""
        if self.only_where is not None:
            one = self.editor.constant(np.ones((), np.int32))
            agrees = self.editor.emit("Where", self.only_where, agrees, one)
        self.checks[agrees] = why

    def import_subgraph(
        self, body: Subgraph, inputs: Sequence[Item], only_where: Value | None = None
    ) -> tuple[Item, ...] | None:
        """What a subgraph makes of these inputs; None where a node in it was refused."""
        names = [info.name for info in body.graph.input]
        if len(names) != len(inputs):
            raise InvalidError(f"its body has {len(names)} inputs, expected {len(inputs)}")
        self.expect(body, 1)
        self.size.add(count_nodes(body.graph))
        outside = self.values, self.inside, self.editor.origin, self.declared, self.only_where
        refused = len(self.refusals)
        if only_where is not None and self.only_where is not None:
            self.only_where = self.editor.emit("And", self.only_where, only_where)
        elif only_where is not None:
            self.only_where = only_where
        self.declared = declared_types(body.graph)
        self.values, self.inside = self.values.new_child(), self.editor.origin
        try:
            for name, item in {**body.constants, **dict(zip(names, inputs, strict=True))}.items():
                self.values.define(name, item)
            for number, node in enumerate(body.nodes):
                if self.is_function:
                    self._part(node, self.inside[-1], body.used)
                else:
                    self._node(node, number, body.used)
            made = [self._input(info.name) for info in body.graph.output]
        finally:
            self.values, self.inside, self.editor.origin, self.declared, self.only_where = outside
        known = tuple(item for item in made if item is not None)
        return known if len(known) == len(made) and len(self.refusals) == refused else None

    def expect(self, body: Subgraph, times: int) -> None:
        """Raise BadInputError where importing a subgraph so often would make too many nodes."""
        self.size.expect(times * count_nodes(body.graph))


def _check_types(types: Iterable[TensorType]) -> None:
    for kind in types:
        if why := why_too_large(kind):
            raise InvalidError(f"its result cannot be: {why}")


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
    newest, opset = onnx.defs.onnx_opset_version(), found.get("", FIRST_OF_RECORDS)
    if opset < OLDEST_OPSET or opset > newest:
        raise BadInputError(
            f"opset {opset} is not supported",
            where=where,
            why=f"opsets {OLDEST_OPSET} to {newest} are",
            hint="convert the model with onnx.version_converter.convert_version",
        )
    return found


def _extent(dim: onnx.TensorShapeProto.Dimension) -> int | str:
    """An extent as it is declared: a number, a symbol, or "?" for neither."""
    return dim.dim_value if dim.WhichOneof("value") == "dim_value" else dim.dim_param or "?"
