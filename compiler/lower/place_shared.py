"""Hoisting of shared memory: it is declared outside of the loops over threads."""

from __future__ import annotations

from dataclasses import dataclass

from compiler.loops.ir import SHARED, Alloc, Buffer, For, Func, Stmt
from compiler.loops.walk import Rewriter, allocating, with_body


def place_shared(func: Func) -> Func:
    """Move every `Alloc` of shared memory just outside of the outermost loop over threads around it."""
    return with_body(func, _Place().visit(func.body))


@dataclass(eq=False)
class _Place(Rewriter):
    found: list[Buffer] | None = None

    def visit_for(self, item: For) -> Stmt:
        if not item.over_threads or self.found is not None:
            return self.parts(item)
        self.found = []
        done = allocating(self.found, self.parts(item))
        self.found = None
        return done

    def visit_alloc(self, item: Alloc) -> Stmt:
        if self.found is None or item.buffer.scope != SHARED:
            return self.parts(item)
        self.found.append(item.buffer)
        return self.visit(item.body)
