"""Tensor intrinsics: what a piece of hardware computes, and the statements that make it do so.

A target registers its records; `tensorize` finds them by name. Description and implementation are Funcs with
the same parameters: the description says in plain loops around one block what the implementation does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from compiler.core.diagnostics import InternalError
from compiler.loops.ir import Block, Buffer, For, Func, Seq, Stmt, Store
from compiler.loops.text import parse_func


@dataclass(frozen=True, slots=True)
class TensorIntrinsic:
    """One record; the scope of a parameter in the description is the scope that its buffer has to have.

    `global` in the description fits every memory (global, constant, scratch, shared).
    """

    name: str
    description: Func
    implementation: Func

    def __post_init__(self) -> None:
        names = [item.name for item in self.description.params]
        if names != [item.name for item in self.implementation.params]:
            raise InternalError(f"tensor intrinsic {self.name}: the two functions have different parameters")
        if flat_nest(self.description.body) is None:
            raise InternalError(
                f"tensor intrinsic {self.name}: the description is not loops around one block"
            )
        used = {item.name for item in self.description.body.walk() if isinstance(item, Buffer)}
        if used != set(names):
            raise InternalError(f"tensor intrinsic {self.name}: the description does not use all parameters")
        if any(isinstance(item, Block) for item in self.implementation.body.walk()):
            raise InternalError(f"tensor intrinsic {self.name}: the implementation has blocks")

    @staticmethod
    def from_text(name: str, description: str, implementation: str) -> TensorIntrinsic:
        """The record whose two functions are given as loop text."""
        return TensorIntrinsic(name, parse_func(description), parse_func(implementation))


def flat_nest(stmt: Stmt) -> tuple[tuple[For, ...], Block] | None:
    """(loops, block) of loops directly around one block with one store; None for anything else."""
    loops: list[For] = []
    while isinstance(stmt, For):
        loops.append(stmt)
        stmt = stmt.body
    if isinstance(stmt, Seq) or not isinstance(stmt, Block) or not isinstance(stmt.body, Store):
        return None
    return tuple(loops), stmt


_RECORDS: dict[str, TensorIntrinsic] = {}


def register_tensor_intrinsic(record: TensorIntrinsic) -> TensorIntrinsic:
    """Make a record known; a name stands for one record."""
    if _RECORDS.setdefault(record.name, record) != record:
        raise InternalError(f"tensor intrinsic {record.name} is registered twice")
    return record


def find_tensor_intrinsic(name: str) -> TensorIntrinsic | None:
    """The record called `name`, or None."""
    return _RECORDS.get(name)


def names() -> Iterator[str]:
    """All registered names, sorted."""
    return iter(sorted(_RECORDS))
