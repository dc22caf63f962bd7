"""How one language of the C family spells what the printer needs; one `Vocabulary` per language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from compiler.core.types import DType, dtype

NARROW_FLOATS = frozenset({"f16", "bf16", "f8e4m3", "f8e5m2"})


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Spellings; every function takes finished expression texts and returns one.

    types: C type of a value while it is computed with; `memory` the type of an element in memory.
    vector: name of a vector type. load, store, splat: vectors from and to a pointer, from a scalar.
    load_partial, store_partial: the first n lanes; (pointer, n, other lanes) and (pointer, value, n).
    gather, scatter: lanes at a pointer plus a vector of indices; the strided ones: at every n-th element.
    rolled: what stands before a loop that the compiler must not unroll.
    apart: what stands between statements that must not share loaded values.
    convert: conversion of each lane. widen, narrow: between a value in memory and what is computed with.
    math: name of a function of the IR -> name of the function to call, for scalars and vectors alike.
    """

    name: str
    types: Mapping[str, str]
    memory: Mapping[str, str]
    restrict: str
    rolled: str
    apart: str
    prelude: str
    vector: Callable[[DType], str]
    load: Callable[[DType, str], str]
    store: Callable[[DType, str, str], str]
    splat: Callable[[DType, str], str]
    ramp: Callable[[DType, str, str], str]
    load_strided: Callable[[DType, str, str], str]
    store_strided: Callable[[DType, str, str, str], str]
    load_partial: Callable[[DType, str, str, str], str]
    store_partial: Callable[[DType, str, str, str], str]
    gather: Callable[[DType, str, str], str]
    scatter: Callable[[DType, str, str, str], str]
    convert: Callable[[DType, str], str]
    select: Callable[[str, str, str], str]
    reduce: Callable[[str, str], str]
    shuffle: Callable[[tuple[int, ...], str, str], str]
    widen: Callable[[DType, str], str]
    narrow: Callable[[DType, str], str]
    math: Callable[[str], str]

    def type_of(self, kind: DType) -> str:
        """The C type of a value of this type in a register."""
        return self.types[kind.name] if kind.lanes == 1 else self.vector(computed(kind))


def memory_type(kind: DType) -> DType:
    """The type that moves between memory and registers: narrow floats and bool move as unsigned integers."""
    if kind.name in NARROW_FLOATS:
        return dtype(f"u{kind.bits}", kind.lanes)
    return dtype("u8", kind.lanes) if kind.is_bool else kind


def computed(kind: DType) -> DType:
    """The type that is computed with: narrow floats are f32 until they are stored."""
    return dtype("f32", kind.lanes) if kind.name in NARROW_FLOATS else kind
