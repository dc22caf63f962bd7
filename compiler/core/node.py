"""Base of all IR nodes: immutable records with generic children, rewriting, structural equality and hash."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from operator import attrgetter, is_
from typing import Any, ClassVar, Self, TypeVar, cast, dataclass_transform

T = TypeVar("T", bound="IRNode")


class IRNode:
    """One immutable tree node; subclasses are made with :func:`node`.

    Equality is structural. The hash and the children are found once per object, so comparing, memoising and
    walking large trees is cheap. Field values are nodes, plain hashable values, or tuples of them.
    """

    __slots__ = ("_children", "_hash")
    FIELDS: ClassVar[tuple[str, ...]] = ()
    VALUES: ClassVar[Callable[[Any], object]] = attrgetter("FIELDS")
    """What makes nodes of a class equal: the values of the fields, where a class says nothing else."""
    CHILD_FIELDS: ClassVar[tuple[str, ...]] = ()
    """The fields that can hold nodes, by their annotations."""
    BODY_FIELDS: ClassVar[tuple[str, ...]] = ()
    """Those of them that hold statements."""
    PART_FIELDS: ClassVar[tuple[str, ...]] = ()
    """Those of them that are not what the node binds."""
    READS: ClassVar[tuple[str, ...]] = ()
    """The fields (or properties) that are boxes of buffers which the node itself reads."""
    WRITES: ClassVar[tuple[str, ...]] = ()
    """The same of what it writes."""
    SPELLING: ClassVar[str] = ""
    """How the text form writes it (`loops/spelling.py`); empty where printer and parser have a method."""
    BINDS: ClassVar[tuple[str, ...]] = ()
    """The fields that are variables or buffers which exist inside the node, or hold what binds them."""
    _hash: int
    _children: tuple[IRNode, ...]

    def __hash__(self) -> int:
        try:
            return self._hash
        except AttributeError:
            value = hash((type(self).__name__, type(self).VALUES(self)))
            object.__setattr__(self, "_hash", value)
            return value

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if type(self) is not type(other) or hash(self) != hash(other):
            return False
        values = type(self).VALUES
        return bool(values(self) == values(other))

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some fields changed."""
        return type(self)(**{**{name: getattr(self, name) for name in self.FIELDS}, **changes})

    def walk(self) -> Iterator[IRNode]:
        """Yield this node and everything below it, parents first."""
        stack: list[IRNode] = [self]
        while stack:
            current = stack.pop()
            yield current
            if current.CHILD_FIELDS:
                stack += reversed(current.children())

    def children(self) -> tuple[IRNode, ...]:
        """The nodes directly below this one, in field order."""
        try:
            return self._children
        except AttributeError:
            found: list[IRNode] = []
            _collect(tuple([getattr(self, name) for name in self.CHILD_FIELDS]), found)
            object.__setattr__(self, "_children", tuple(found))
            return self._children

    def map_children(self, fn: Callable[[IRNode], Any]) -> Self:
        """Apply `fn` to each child; the same object comes back when nothing changed."""
        return self._mapped(fn, self.CHILD_FIELDS)

    def map_parts(self, fn: Callable[[IRNode], Any]) -> Self:
        """The same without the variable or buffer that the node binds."""
        return self._mapped(fn, self.PART_FIELDS)

    def _mapped(self, fn: Callable[[IRNode], Any], fields: tuple[str, ...]) -> Self:
        changes: dict[str, Any] = {}
        for name in fields:
            old = getattr(self, name)
            if isinstance(old, IRNode):
                new = fn(old)
            elif old.__class__ is tuple and old:
                new = _map_values(old, fn)
            else:
                continue
            if new is not old:
                changes[name] = new
        return self.replace(**changes) if changes else self


def _collect(values: tuple[Any, ...], found: list[IRNode]) -> None:
    for item in values:
        if isinstance(item, IRNode):
            found.append(item)
        elif item.__class__ is tuple:
            _collect(item, found)


def _map_values(values: tuple[Any, ...], fn: Callable[[IRNode], Any]) -> tuple[Any, ...]:
    """Each node in (tuples in) a tuple mapped; the same tuple where nothing changed."""
    new = tuple(
        [
            fn(item)
            if isinstance(item, IRNode)
            else (_map_values(item, fn) if item.__class__ is tuple else item)
            for item in values
        ]
    )
    return values if all(map(is_, values, new)) else new


_PLAIN = re.compile(
    r"(str|int|bool|float|None|DType|ForKind|Any|tuple\[(int|str), \.\.\.\]"
    r"|tuple\[tuple\[str, Any\], \.\.\.\]| \| )+"
)
"""Annotations (as text) of fields that never hold nodes."""


SPELLED: dict[str, type[IRNode]] = {}
"""First word of a SPELLING -> its class."""


@dataclass_transform(frozen_default=True)
def node(cls: type[T]) -> type[T]:
    """Class decorator: a frozen, slotted dataclass whose equality and hash are those of `IRNode`."""
    made = dataclasses.dataclass(frozen=True, slots=True, eq=False, repr=False)(cls)
    fields = dataclasses.fields(made)  # type: ignore[arg-type]  # decorated above
    made.FIELDS = tuple(field.name for field in fields)
    if made.FIELDS and "VALUES" not in vars(cls):
        made.VALUES = attrgetter(*made.FIELDS)
    holding = {field.name: str(field.type) for field in fields if not _PLAIN.fullmatch(str(field.type))}
    made.CHILD_FIELDS = tuple(holding)
    made.BODY_FIELDS = tuple(name for name, kind in holding.items() if "Stmt" in kind)
    bound = {name for name in made.BINDS if not holding[name].startswith("tuple")}
    made.PART_FIELDS = tuple(name for name in holding if name not in bound)
    if made.SPELLING:
        SPELLED[re.split(r"\W", made.SPELLING, maxsplit=1)[0]] = made
    return made


def rewrite_nodes(root: T, fn: Callable[[IRNode], IRNode | None]) -> T:
    """Rewrite bottom-up: children first, then `fn` on the rebuilt node (None means no change).

    Shared subtrees are rewritten once; the same object comes back when nothing changed.
    """
    memo: dict[int, IRNode] = {}

    def visit(current: IRNode) -> IRNode:
        key = id(current)
        done = memo.get(key)
        if done is not None:
            return done
        rebuilt = current.map_children(visit)
        result = fn(rebuilt)
        result = rebuilt if result is None else result
        memo[key] = result
        return result

    return cast(T, visit(root))
