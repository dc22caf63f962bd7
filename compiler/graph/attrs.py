"""Attributes of a graph node: a frozen, hashable mapping with typed access."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from compiler.core.types import DType

AttrValue = bool | int | float | str | DType | tuple[int, ...] | tuple[float, ...] | tuple[str, ...]


class Attrs(Mapping[str, AttrValue]):
    """Attribute values by name, in name order."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, AttrValue] | None = None, **more: AttrValue) -> None:
        merged = {**(items or {}), **more}
        self._items: dict[str, AttrValue] = {name: merged[name] for name in sorted(merged)}
        self._hash = hash(tuple(self._items.items()))

    def __getitem__(self, name: str) -> AttrValue:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Attrs) and self._items == other._items

    def __repr__(self) -> str:
        return f"Attrs({self._items})"

    def with_(self, **changes: AttrValue) -> Attrs:
        """A copy with some attributes set."""
        return Attrs(self._items, **changes)

    def integer(self, name: str, default: int | None = None) -> int:
        """The integer `name`; TypeError when it is something else, KeyError when there is no default."""
        return int(_typed(name, self._get(name, default), (int,)))

    def number(self, name: str, default: float | None = None) -> float:
        """The number `name`."""
        return float(_typed(name, self._get(name, default), (int, float)))

    def flag(self, name: str, *, default: bool | None = None) -> bool:
        """The truth value `name` (ONNX writes 0 and 1)."""
        return bool(_typed(name, self._get(name, default), (int,)))

    def text(self, name: str, default: str | None = None) -> str:
        """The string `name`."""
        return str(_typed(name, self._get(name, default), (str,)))

    def integers(self, name: str, default: tuple[int, ...] | None = None) -> tuple[int, ...]:
        """The integers `name`."""
        found: tuple[Any, ...] = _typed(name, self._get(name, default), (tuple,))
        return tuple(int(_typed(name, item, (int,))) for item in found)

    def numbers(self, name: str, default: tuple[float, ...] | None = None) -> tuple[float, ...]:
        """The numbers `name`."""
        found: tuple[Any, ...] = _typed(name, self._get(name, default), (tuple,))
        return tuple(float(_typed(name, item, (int, float))) for item in found)

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        """The strings `name`."""
        found: tuple[Any, ...] = _typed(name, self._get(name, default), (tuple,))
        return tuple(str(_typed(name, item, (str,))) for item in found)

    def dtype(self, name: str) -> DType:
        """The element type `name`."""
        found: DType = _typed(name, self[name], (DType,))
        return found

    def _get(self, name: str, default: AttrValue | None) -> AttrValue:
        return self._items[name] if default is None else self._items.get(name, default)


def _typed(name: str, value: Any, kinds: tuple[type, ...]) -> Any:
    if not isinstance(value, kinds):
        expected = " or ".join(kind.__name__ for kind in kinds)
        raise TypeError(f"attribute {name} is {value!r}, expected {expected}")
    return value
