"""Primitives about the memory of buffers: set_scope, storage_align."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from compiler.loops.ir import Buffer, Func, const
from compiler.loops.queries import int_of
from compiler.schedule.primitives.base import Primitive
from compiler.schedule.program import Program
from compiler.schedule.rewriting import with_buffer


@dataclass(frozen=True, slots=True)
class SetScope(Primitive[None]):
    """Say in which memory a local buffer lives.

    buffer: a local buffer. scope: `global`, `scratch`, `register`, `shared`, ... or one of the target's own.
    Outputs: none.
    rewrite: local t -> local t @register
    TVM: set_scope.
    """

    name: ClassVar[str] = "set_scope"

    buffer: str
    scope: str

    def apply(self, program: Program) -> tuple[Func, None]:
        buffer = program.buffer(self.buffer, self.name)
        if buffer in program.func.params:
            raise self.refuse(
                "it is a parameter",
                "the caller decides where parameters live",
                "put cache_read or cache_write between and set the scope of the cache",
            )
        if not self.scope or not all(part.isidentifier() for part in self.scope.split(".")):
            raise self.refuse(
                f"{self.scope!r} is not the name of a scope",
                "scopes are names, with dots between",
                "global, scratch, register, shared, fragment, ...",
            )
        return with_buffer(program.func, buffer.replace(scope=self.scope)), None


@dataclass(frozen=True, slots=True)
class StorageAlign(Primitive[None]):
    """Put the rows of a buffer at distances `factor * n + offset`.

    buffer: a local buffer. axis: the dimension whose stride is rounded up. factor, offset: in elements.
    dense: the dimension whose elements lie side by side, by default the last; the others keep their order.
    Avoids bank conflicts of shared memory and cache set conflicts. Outputs: none.
    rewrite: strides (33 * 7, 7, 1) of (n, 33, 7), axis 1, factor 8 -> (33 * 8, 8, 1)
    TVM: storage_align.
    """

    name: ClassVar[str] = "storage_align"
    later: ClassVar[tuple[str, ...]] = ("dense",)

    buffer: str
    axis: int
    factor: int
    offset: int = 0
    dense: int = -1

    def apply(self, program: Program) -> tuple[Func, None]:
        buffer = program.buffer(self.buffer, self.name)
        self._check(program.func, buffer)
        dense = self._dense(buffer)
        strides, inner = {dense: 1}, dense
        for axis in reversed([n for n in range(len(buffer.shape)) if n != dense]):
            stride = strides[inner] * self._extent(buffer, inner)
            if axis == self.axis:
                stride += (self.offset - stride) % self.factor
            strides[axis], inner = stride, axis
        ordered = tuple(const(strides[axis]) for axis in range(len(buffer.shape)))
        return with_buffer(program.func, buffer.replace(strides=ordered)), None

    def _dense(self, buffer: Buffer) -> int:
        return self.dense + len(buffer.shape) if self.dense < 0 else self.dense

    def _extent(self, buffer: Buffer, axis: int) -> int:
        extent = int_of(buffer.shape[axis])
        if extent is None:
            raise self.refuse("it has a symbolic extent", f"dimension {axis}", "compile for a fixed shape")
        return extent

    def _check(self, func: Func, buffer: Buffer) -> None:
        if buffer in func.params:
            raise self.refuse("it is a parameter", "its strides are the caller's", "align a cache of it")
        if buffer.strides:
            raise self.refuse("it has strides already", "they were set before", "align a buffer once")
        rank, dense = len(buffer.shape), self._dense(buffer)
        others = [n for n in range(rank) if n != dense]
        if not 0 <= dense < rank or self.axis not in others:
            raise self.refuse(
                f"axis {self.axis} cannot be aligned",
                f"the buffer has {rank} dimensions, and number {dense} is dense",
                f"an axis of {', '.join(map(str, others))}",
            )
        if self.factor < 1 or not 0 <= self.offset < self.factor:
            raise self.refuse(
                f"factor {self.factor} with offset {self.offset} is no alignment",
                "the stride becomes factor * n + offset",
                "a positive factor and an offset from 0 to factor - 1",
            )
