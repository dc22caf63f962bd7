"""Hoisting of shared memory: it is declared outside of the loops over threads."""

from __future__ import annotations

from compiler.loops.ir import SHARED, Alloc, Buffer, For, Func, Stmt
from compiler.loops.walk import Rewriter, with_body


def place_shared(func: Func) -> Func:
    """Move every `Alloc` of shared memory just outside of the outermost loop over threads around it."""
    return with_body(func, _Place().visit(func.body))


class _Place(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self._found: list[Buffer] | None = None

    def visit_for(self, item: For) -> Stmt:
        if not item.over_threads or self._found is not None:
            return self.parts(item)
        self._found = []
        done: Stmt = self.parts(item)
        for buffer in reversed(self._found):
            done = Alloc(buffer, done)
        self._found = None
        return done

    def visit_alloc(self, item: Alloc) -> Stmt:
        if self._found is None or item.buffer.scope != SHARED:
            return self.parts(item)
        self._found.append(item.buffer)
        return self.visit(item.body)
