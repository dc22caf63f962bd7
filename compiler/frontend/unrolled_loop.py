"""Loop: its rounds become nodes of the graph, one after the other.

Where the number of rounds depends on data, all up to the trip count are made, and what is carried stays as it
is once the condition fails. Elements that are collected are as many as there are rounds: where data decides,
the model has to declare how many, and a run in which there are others fails.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from compiler.core.types import I32, I64
from compiler.frontend.attributes import graph_attribute
from compiler.frontend.item_node import (
    Importing,
    ItemNode,
    integer_constant,
    known_scalar,
    no_rows,
    scalar,
    select,
    stack,
)
from compiler.frontend.scope import Item, item_text
from compiler.graph.ir import Value
from compiler.graph.op import InvalidError, UnsupportedError


class UnrolledLoop:
    """State of a Loop while its rounds are imported.

    most: the largest number of rounds, where it is known; trips: the tensor that says it where it is not.
    exact: how many rounds the model declares. last: the condition for the next round where data decides it;
    so it did for those in `conditions`. alive: where the next round counts, unless the number of rounds is
    declared; None where it does in any case.
    """

    def __init__(self, importing: Importing, node: ItemNode) -> None:
        self._importing = importing
        self._editor = importing.editor
        self._body = importing.open_subgraph(graph_attribute(node.proto, "body"))
        self._carried = [node.item(at) for at in range(2, len(node.inputs))]
        count = len(self._body.graph.output) - 1 - len(self._carried)
        if len(self._body.graph.input) != 2 + len(self._carried) or count < 0:
            raise InvalidError("the inputs and outputs of its body do not fit its own")
        self._scans: list[list[Value]] = [[] for _ in range(count)]
        collected = node.declared[len(self._carried) :]
        self._exact = next((kind.shape[0] for kind in collected if kind is not None and kind.rank), None)
        self._most: int | None = None
        self._trips: Value | None = None
        if node.has(0):
            self._limit(node.tensor(0))
        self._asks = node.has(1)
        self._over = False
        self._last: Value | None = None
        self._conditions: list[Value] = []
        self._alive: Value | None = None
        if self._asks:
            self._continue(node.tensor(1))

    def run(self) -> tuple[Item, ...] | None:
        """What the loop makes; None where a node of its body was refused."""
        done = 0
        self._expect(done)
        while not self._over and not self._ends(done):
            self._begin()
            made = self._round(done)
            if made is None:
                return None
            self._keep(made[1:])
            done += 1
            if self._asks:
                if not isinstance(made[0], Value):
                    raise InvalidError(f"its condition is {item_text(made[0])}")
                self._continue(made[0])
                self._expect(done)
        if self._is_declared:
            self._check(done)
        return self._results(done)

    @property
    def _is_conditional(self) -> bool:
        """Whether data decides about a round so far."""
        return bool(self._conditions) or self._last is not None

    @property
    def _is_declared(self) -> bool:
        """Whether data decides how many rounds there are, and the model declares it."""
        return self._exact is not None and (self._trips is not None or self._is_conditional)

    def _limit(self, trips: Value) -> None:
        """Take account of the trip count."""
        known = known_scalar(self._editor, trips, "trip count")
        if known is not None:
            self._most = max(int(known), 0)
        elif self._exact is None:
            raise UnsupportedError(
                "its trip count is known only when the model runs, and the model does not declare how many "
                "elements it collects; if a model input carries it, give --bind"
            )
        else:
            wide = self._editor.emit("Cast", scalar(self._editor, trips, "trip count"), to=I64)
            self._trips = self._editor.emit("Max", wide, integer_constant(self._editor, 0))

    def _ends(self, done: int) -> bool:
        """Whether there are no more rounds, whatever the condition says."""
        return done == self._most or (self._is_declared and done == self._exact)

    def _continue(self, condition: Value) -> None:
        """Take account of the condition for the next round."""
        known = known_scalar(self._editor, condition, "condition")
        if known is not None:
            self._over, self._last = self._over or not known, None
            return
        self._last = scalar(self._editor, condition, "condition")
        if not self._last.type.dtype.is_bool:
            raise InvalidError(f"its condition is {condition.type}, not bool")

    def _begin(self) -> None:
        """Begin a round, about which its condition decides."""
        last, self._last = self._last, None
        if last is None:
            return
        self._conditions.append(last)
        if self._exact is None:
            self._alive = last if self._alive is None else self._editor.emit("And", self._alive, last)

    def _expect(self, done: int) -> None:
        """Refuse what never ends, or would become too large, before it is made."""
        if self._over:
            return
        endless = not self._asks or self._is_conditional or _stays(self._body.graph)
        most = self._exact if self._is_declared else self._most
        if most is None and endless:
            raise UnsupportedError(
                "how many rounds it makes is known only when the model runs, and it has no largest trip count"
            )
        if most is not None and endless:
            self._importing.expect(self._body, most - done)

    def _round(self, number: int) -> tuple[Item, ...] | None:
        """What the body makes of the values carried; in a round that counts its condition holds."""
        first, second = (_extents(info) for info in self._body.graph.input[:2])
        turn = integer_constant(self._editor, number, first)
        holds = self._editor.constant(np.full(second, fill_value=True))
        return self._importing.import_subgraph(self._body, (turn, holds, *self._carried), self._alive)

    def _keep(self, made: Sequence[Item]) -> None:
        count, alive = len(self._carried), self._alive
        for rows, item in zip(self._scans, made[count:], strict=True):
            if not isinstance(item, Value):
                raise InvalidError(f"an output that it collects is {item_text(item)}, not a tensor")
            rows.append(item)
        if alive is None:
            self._carried = list(made[:count])
        else:
            pairs = zip(made[:count], self._carried, strict=True)
            self._carried = [select(self._editor, alive, new, old) for new, old in pairs]

    def _check(self, done: int) -> None:
        """Let a run fail that makes another number of rounds than is declared."""
        e, flags = self._editor, [*self._conditions]
        if done != self._exact or (self._most is not None and self._most != done and self._goes_on):
            raise InvalidError(f"the model declares {self._exact} rounds, which it cannot make")
        if self._trips is not None:
            flags.append(self._stops_by_trips(self._trips, done))
        elif self._last is not None and self._most != done:
            flags.append(e.emit("Not", self._last))
        if not flags:
            return
        all_hold = flags[0]
        for flag in flags[1:]:
            all_hold = e.emit("And", all_hold, flag)
        why = f"a Loop does not make the {done} rounds that the model declares"
        self._importing.check(e.emit("Cast", all_hold, to=I32), why)

    @property
    def _goes_on(self) -> bool:
        """Whether nothing but the trip count ends it now."""
        return not self._over and self._last is None

    def _stops_by_trips(self, trips: Value, done: int) -> Value:
        """Whether the trip count, or the condition now, ends the loop, and the trip count did not before."""
        e = self._editor
        reached = e.emit("Equal", trips, integer_constant(e, done))
        if self._goes_on:
            return reached
        more = e.emit("Greater", trips, integer_constant(e, done))
        stopped = more if self._last is None else e.emit("And", more, e.emit("Not", self._last))
        return e.emit("Or", reached, stopped)

    def _results(self, done: int) -> tuple[Item, ...] | None:
        if self._scans and self._conditions and not self._is_declared:
            raise UnsupportedError(
                "how many elements it collects is known only when the model runs, and not declared"
            )
        if not done:
            empty = self._empty_scans() if self._scans else []
            return None if empty is None else (*self._carried, *empty)
        return (*self._carried, *(stack(self._editor, rows, 0) for rows in self._scans))

    def _empty_scans(self) -> list[Value] | None:
        """No elements, of the types that a round would make."""
        made = self._round(0)
        if made is None:
            return None
        return [no_rows(self._editor, item, 0) for item in made[1 + len(self._carried) :]]


def _stays(graph: onnx.GraphProto) -> bool:
    """Whether a body's condition is one that it was given: the one before, or one from outside."""
    makers = {name: node for node in graph.node for name in node.output}
    name = graph.output[0].name
    while name in makers and makers[name].op_type == "Identity":
        name = makers[name].input[0]
    return name not in makers or makers[name].op_type == "Constant"


def _extents(info: onnx.ValueInfoProto) -> tuple[int, ...]:
    """The shape of one element as a body's input declares it: with one dimension, or without."""
    shape = info.type.tensor_type.shape
    return (1,) if len(shape.dim) == 1 else ()
