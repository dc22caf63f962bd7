"""Loop interchange in unrolled nests against register pressure: few loaded values are needed at a time.

In `tile[o, w] += x[w] * k[o]` each value of one operand is used once for every value of the other. Where the
longer of the two loops is inside, all its values stay alive while the outer one advances, and they do not fit
into the registers beside the tile. The iterations of such a nest may run in any order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, permutations, product

from compiler.loops.build import COMBINING
from compiler.loops.ir import Binary, Expr, For, ForKind, Func, Load, Stmt, Store, Var
from compiler.loops.queries import int_of
from compiler.loops.walk import Rewriter, with_body

_MAX_LOOPS = 4
_MAX_ITERATIONS = 512


def order_unrolled(func: Func) -> Func:
    """Reorder perfect nests of unrolled loops around one accumulation."""
    return with_body(func, _Order().visit(func.body))


class _Order(Rewriter):
    def visit_for(self, item: For) -> Stmt:
        nest, body = _nest(item)
        if len(nest) < 2 or len(nest) > _MAX_LOOPS or not isinstance(body, Store) or not _accumulates(body):
            return self.parts(item)
        loops = min(permutations(nest), key=lambda order: (_alive(order, body), _moved(order, nest)))
        if list(loops) == nest:
            return item
        result: Stmt = body
        for loop in reversed(loops):
            result = loop.replace(body=result)
        return result


def _nest(item: Stmt) -> tuple[list[For], Stmt]:
    """Unrolled loops, each the only statement of the one around it, and what is inside."""
    found: list[For] = []
    count = 1
    while isinstance(item, For) and item.kind is ForKind.UNROLLED:
        extent = int_of(item.extent)
        if extent is None or count * extent > _MAX_ITERATIONS:
            break
        count *= extent
        found.append(item)
        item = item.body
    return found, item


def _accumulates(store: Store) -> bool:
    """Whether the store only combines something with what it stores to."""
    value, here = store.value, Load(store.buffer, store.indices)
    if not isinstance(value, Binary) or value.op not in COMBINING or store.mask is not None:
        return False
    rest = value.b if value.a == here else value.a if value.b == here else None
    return rest is not None and all(load.buffer != store.buffer for load in _loads(rest))


def _loads(expr: Expr) -> list[Load]:
    return [item for item in expr.walk() if isinstance(item, Load)]


def _alive(order: Sequence[For], store: Store) -> int:
    """The most loaded values that are needed before and after one iteration."""
    names = [loop.var for loop in order]
    uses = [
        tuple(number for number, var in enumerate(names) if var in _variables(load))
        for load in _loads(store.value)
        if load.buffer != store.buffer
    ]
    first: dict[tuple[int, tuple[int, ...]], int] = {}
    last: dict[tuple[int, tuple[int, ...]], int] = {}
    ranges = (range(int_of(loop.extent) or 1) for loop in order)
    for time, point in enumerate(product(*ranges)):
        for which, dims in enumerate(uses):
            key = (which, tuple(point[dim] for dim in dims))
            first.setdefault(key, time)
            last[key] = time
    changes = Counter(first.values())
    changes.subtract(time + 1 for time in last.values())
    return max(accumulate(changes[time] for time in sorted(changes)), default=0)


def _variables(load: Load) -> set[Var]:
    return {item for index in load.indices for item in index.walk() if isinstance(item, Var)}


def _moved(order: Sequence[For], nest: Sequence[For]) -> tuple[int, ...]:
    """Prefers the given order among equals."""
    return tuple(nest.index(loop) for loop in order)
