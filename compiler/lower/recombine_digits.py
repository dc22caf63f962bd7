"""Places in memory without the divisions that meet again in them (`loops/digits.py`), on devices.

Each division is address arithmetic of every thread, and each place that does not follow from another one by a
constant is a pointer of its own, in registers.
"""

from __future__ import annotations

from compiler.core.node import IRNode
from compiler.core.target import TargetFacts
from compiler.core.types import INDEX
from compiler.loops.digits import recombined
from compiler.loops.ir import Expr, Func, Indexed, Region
from compiler.loops.walk import AccessRewriter, with_body


def recombine_digits(func: Func, target: TargetFacts) -> Func:
    """Write places that are linear in the loops as such; flat buffers."""
    return with_body(func, _Places().visit(func.body)) if target.binds_threads else func


class _Places(AccessRewriter):
    uses_conditions = True

    def place(self, item: Indexed | Region) -> IRNode:
        if isinstance(item, Region):
            return item.replace(begin=(self._number(item.begin[0]),))
        return item.replace(indices=(self._number(item.indices[0]),))

    def _number(self, index: Expr) -> Expr:
        if index.dtype != INDEX:
            return index
        total = self.known.linear(index)
        found = recombined(total, self.known)
        return index if found is total else self.known.emit(found)
