"""How one language of the C family spells what the printer needs; one `Vocabulary` per language."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from compiler.core.types import DType, dtype

Dim3 = tuple[int, int, int]
"""Extents along x, y and z."""

NARROW_FLOATS = frozenset({"tf32", "f16", "bf16", "f8e4m3", "f8e5m2"})


@dataclass(frozen=True, slots=True)
class CopyWords:
    """How asynchronous copies into shared memory are written: statements.

    copy: starts one, (to, from, bytes). fill: the same where a condition holds, else it starts to write
    zeros, (to, from, bytes, condition). commit: closes a group. wait: until so many groups are left.
    """

    copy: Callable[[str, str, int], str]
    fill: Callable[[str, str, int, str], str]
    commit: str
    wait: Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is known of each launch of a device function: the threads of a block along x, y, z.

    resident: blocks that a unit works on at the same time where the grid has no more, else 0. cluster: blocks
    of a cluster, side by side along z. waves: the fewest and the most sub-groups that a part of a unit has,
    where many reads of each are to be under way.
    """

    block: Dim3
    resident: int = 0
    cluster: int = 1
    waves: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class DeviceWords:
    """What a language of devices says beside computing.

    kernel: the head of a device function without the brace, from its name, parameters and bounds.
    pointer: a pointer to elements of a C type, const or not, in the memory of a scope.
    axes: the position along `blockIdx.x` ... `threadIdx.z`. array: declaration of an array: (C type, name,
    elements, scope). barriers: by scope. atomic: a statement: (operator, element type, address, value).
    copies: asynchronous ones into shared memory; None where the language has none.
    shared_at: an array in the memory that a launch asks for, at so many bytes of it, (C type, name, elements,
    offset); None where all arrays have memory of their own.
    fragment: the type of an opaque tile of a matrix unit, from its lane map, and how many elements a lane
    holds of it; None where tiles are arrays of elements like any other.
    begin: a statement in front of the first use of what other launches write; empty where none is needed.
    in_block: where the block of a rank has what this one has at an address of its shared memory, (address,
    rank); None where blocks form no clusters.
    end: a statement at the end where other blocks may still read a block's memory; empty where none can.
    last_block: a condition that all threads of a block come to together: whether the block comes last to a
    counter, (its address, blocks that come, a shared word to tell it by); None where that cannot be said.
    load_matrices: the words of so many matrices of shared memory, (count, address of this lane's row, whether
    a lane gets neighbours of a column); None where each lane loads its own.

    A scope is that of the buffer; LOCAL stands for private memory in what the threads of a block share, TILES
    for shared memory of opaque fragments.
    """

    kernel: Callable[[str, Sequence[str], Bounds], str]
    pointer: Callable[[str, str], str]
    axes: Mapping[str, str]
    array: Callable[[str, str, int, str], str]
    barriers: Mapping[str, str]
    atomic: Callable[[str, DType, str, str], str]
    copies: CopyWords | None = None
    shared_at: Callable[[str, str, int, int], str] | None = None
    fragment: Callable[[str], tuple[str, int]] | None = None
    begin: str = ""
    in_block: Callable[[str, str], str] | None = None
    end: str = ""
    last_block: Callable[[str, int, str], str] | None = None
    load_matrices: Callable[[int, str, bool], str] | None = None


LOCAL = "local-scratch"
"""Scope of a thread's private memory that is taken from what its block shares (one thread in a block)."""

TILES = "tiles"
"""Scope of shared memory that opaque fragments of a matrix unit are loaded from, or stored to."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Spellings; every function takes finished expression texts and returns one.

    types: C type of a value while it is computed with; `memory` the type of an element in memory.
    vector: name of a vector type. load, store, splat: vectors from and to a pointer, from a scalar.
    load_partial, store_partial: the first n lanes; (pointer, n, other lanes) and (pointer, value, n).
    gather, scatter: lanes at a pointer plus a vector of indices; the strided ones: at every n-th element.
    rolled: what stands before a loop that the compiler must not unroll.
    apart: what stands between statements that must not share loaded values.
    convert: conversion of each lane. widen: a value in memory as what is computed with.
    math: name of a function of the IR -> name of the function to call, for scalars and vectors alike.
    typed: name of a function whose operands have to be of one given type.
    build: a vector from the texts of its lanes. lane: one lane of a vector.
    literal: spelling of a constant; None where C's own will do.
    load_aligned, store_aligned: whole vectors at a multiple of their length; None where it is all the same.
    load_or_zero: what lies in memory where a condition holds, else zero, without a branch, (type, base of the
    buffer, address, condition); None where C's own operator does as well.
    index: type of loop variables and offsets.
    device: what the language of a device has beside; None for the host's.
    helpers: by the name of a call in the IR, the function that does it; it takes narrow floats as they lie in
    memory, and stands behind the prelude where a kernel calls it.
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
    shuffle: Callable[[tuple[int, ...], str, str], str]
    widen: Callable[[DType, str], str]
    math: Callable[[str], str]
    typed: Callable[[str, DType], str]
    build: Callable[[DType, Sequence[str]], str]
    lane: Callable[[str, int], str]
    literal: Callable[[float, DType], str | None] = lambda _value, _kind: None
    load_aligned: Callable[[DType, str], str] | None = None
    store_aligned: Callable[[DType, str, str], str] | None = None
    load_or_zero: Callable[[str, str, str, str], str] | None = None
    index: str = "int64_t"
    device: DeviceWords | None = None
    helpers: Mapping[str, str] = field(default_factory=dict)

    def type_of(self, kind: DType) -> str:
        """The C type of a value of this type in a register."""
        return self.types[kind.name] if kind.lanes == 1 else self.vector(computed(kind))

    def module(self, texts: Sequence[str]) -> str:
        """One source of several functions: the prelude, the helpers that they call, and they."""
        calls = {self.math(name): helper for name, helper in self.helpers.items()}
        used = [helper for call, helper in calls.items() if any(f"{call}(" in text for text in texts)]
        return "\n".join([self.prelude, *dict.fromkeys(used), *texts])


def memory_type(kind: DType) -> DType:
    """The type that moves between memory and registers: narrow floats and bool move as unsigned integers."""
    if kind.name in NARROW_FLOATS:
        return dtype(f"u{kind.bits}", kind.lanes)
    return dtype("u8", kind.lanes) if kind.is_bool else kind


def narrowed(kind: DType, value: str) -> str:
    """A value that was computed as it lies in memory."""
    return f"tk_f32_to_{kind.name}({value})" if kind.name in NARROW_FLOATS else value


def computed(kind: DType) -> DType:
    """The type that is computed with: narrow floats are f32 until they are stored."""
    return dtype("f32", kind.lanes) if kind.name in NARROW_FLOATS else kind
