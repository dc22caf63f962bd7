"""Calls on opaque fragments: what they touch, and each as loops and as a call, for `tensorize`.

`wmma.fill(&c, value)`; `wmma.load_a(&a, &memory, stride)`, `wmma.load_b` (memory by steps), `wmma.load_bt`
(by columns); `wmma.mma(&c, &a, &b)` and `wmma.mma_bt`: c += a @ b; `wmma.store(&memory, &c, stride)`. All
lanes of a sub-group make them together. A stride is a number of elements, or the address of the next row, as
long as memory may still change its layout: then the last two dimensions of the buffer are those of the tile.
"""

from __future__ import annotations

from collections.abc import Mapping

from compiler.core.node import IRNode
from compiler.loops.ir import AddressOf, Buffer, Call, Expr, Region, const
from compiler.loops.matrix_units import wmma
from compiler.loops.matrix_units.modes import Modes, digit_of_lane, digits_of, number_text
from compiler.loops.matrix_units.unit import Fragment, MatrixUnit

FILL, STORE = "wmma.fill", "wmma.store"
LOADS = {"wmma.load_a": "a", "wmma.load_b": "b", "wmma.load_bt": "bt"}
PRODUCTS = {"wmma.mma": "b", "wmma.mma_bt": "bt"}
CALLS = (FILL, *LOADS, *PRODUCTS, STORE)

Boxes = tuple[tuple[Region, ...], tuple[Region, ...]]
"""What is read, and what is written."""


def boxes_of(item: IRNode) -> Boxes | None:
    """The boxes that a call on fragments reads and writes; None where not known, and for other nodes."""
    if not isinstance(item, Call) or item.name not in CALLS:
        return None
    own = [_fragment(arg) for arg in item.args]
    if item.name == FILL:
        return _known((), own[:1])
    if item.name in PRODUCTS:
        return _known(own, own[:1])
    memory = _memory(item)
    return _known([own[1]], [memory]) if item.name == STORE else _known([memory], own[:1])


def _known(reads: list[Region | None] | tuple[()], writes: list[Region | None]) -> Boxes | None:
    found = tuple(box for box in reads if box), tuple(box for box in writes if box)
    return found if len(found[0]) == len(reads) and len(found[1]) == len(writes) else None


def _fragment(arg: Expr) -> Region | None:
    """All that a lane holds of a fragment."""
    found = wmma.unit_of(arg.buffer.lane_map) if isinstance(arg, AddressOf) else None
    if found is None or not isinstance(arg, AddressOf):
        return None
    ones = [const(1)] * (len(arg.indices) - 1)
    return Region(arg.buffer, arg.indices, (*ones, const(wmma.fragment_of(*found).registers)))


def _memory(call: Call) -> Region | None:
    """The tile of memory that a call moves."""
    memory, fragment = reversed(call.args[:2]) if call.name != STORE else call.args[:2]
    found = wmma.unit_of(fragment.buffer.lane_map) if isinstance(fragment, AddressOf) else None
    numbered = not isinstance(call.args[2], AddressOf)
    if found is None or numbered or not isinstance(memory, AddressOf):
        return None
    rows, columns = wmma.tile_shape(*found)
    ones = [const(1)] * (len(memory.indices) - 2)
    return Region(memory.buffer, memory.indices, (*ones, const(rows), const(columns)))


def memory_of(item: IRNode) -> tuple[Buffer, ...]:
    """The memory that a call moves a tile from or to; of other nodes, and of products, none."""
    if not isinstance(item, Call) or item.name not in (*LOADS, STORE):
        return ()
    memory = item.args[0 if item.name == STORE else 1]
    return (memory.buffer,) if isinstance(memory, AddressOf) else ()


# ---------------------------------------------------------------- tensor intrinsics


def intrinsic_name(unit: MatrixUnit, what: str) -> str:
    """The name of a tensor intrinsic: what is `fill`, `load_a`, `load_bt`, `mma` or `store`."""
    return f"{unit.name}.{what}"


def tile_intrinsics(unit: MatrixUnit) -> Mapping[str, tuple[str, str]]:
    """Description and implementation of each, by name; b lies by columns, as rules stage it."""
    tiles = _Tiles(unit)
    made = {
        "fill": tiles.fill(),
        "load_a": tiles.load("a"),
        "load_bt": tiles.load("bt"),
        "mma": tiles.product(),
        "store": tiles.store(),
    }
    return {intrinsic_name(unit, what): texts for what, texts in made.items()}


class _Tiles:
    """Texts of one unit: loops over the digits of rows and columns, as the fragment has them."""

    def __init__(self, unit: MatrixUnit) -> None:
        self.unit = unit

    def fill(self) -> tuple[str, str]:
        c, zero = self.unit.c, "0.0" if self.unit.total.is_float else "0"
        loops = [*_loops("r", c.rows), *_loops("c", c.columns)]
        own = _held("c", c, _own("r", c.rows), _own("c", c.columns))
        call = f"wmma.fill:i32(&{self._of_lane('c', c)}, {zero})"
        return self._texts([self._fragment("c", "c")], loops, f"{own} = {zero}", call)

    def load(self, part: str) -> tuple[str, str]:
        fragment = wmma.fragment_of(self.unit, part)
        loops = [*_loops("r", fragment.rows), *_loops("c", fragment.columns)]
        row, column = _flat("r", fragment.rows), _flat("c", fragment.columns)
        own = _held("f", fragment, _own("r", fragment.rows), _own("c", fragment.columns))
        call = f"wmma.load_{part}:i32(&{self._of_lane('f', fragment)}, &m[0, 0], &m[1, 0])"
        params = [self._fragment("f", part), self._memory("m", part)]
        return self._texts(params, loops, f"{own} = m[{row}, {column}]", call)

    def product(self) -> tuple[str, str]:
        a, b, c = self.unit.a, self.unit.b, self.unit.c
        loops = [*_loops("r", c.rows), *_loops("c", c.columns), ("k", self.unit.steps)]
        row, column = _flat("r", c.rows), _flat("c", c.columns)
        own = _held("c", c, _own("r", c.rows), _own("c", c.columns))
        left = _held("a", a, digits_of(row, a.rows), digits_of("vk", a.columns))
        right = _held("b", b, digits_of(column, b.rows), digits_of("vk", b.columns))
        kind = self.unit.total
        call = ", ".join(f"&{self._of_lane(*one)}" for one in (("c", c), ("a", a), ("b", b)))
        params = [self._fragment("c", "c"), self._fragment("a", "a"), self._fragment("b", "bt")]
        store = f"{own} += {kind}({left}) * {kind}({right})"
        return self._texts(params, loops, store, f"wmma.mma_bt:i32({call})")

    def store(self) -> tuple[str, str]:
        c = self.unit.c
        loops = [*_loops("r", c.rows), *_loops("c", c.columns)]
        own = _held("c", c, _own("r", c.rows), _own("c", c.columns))
        call = f"wmma.store:i32(&m[0, 0], &{self._of_lane('c', c)}, &m[1, 0])"
        params = [self._memory("m", "c"), self._fragment("c", "c")]
        return self._texts(params, loops, f"m[{_flat('r', c.rows)}, {_flat('c', c.columns)}] = {own}", call)

    # ------------------------------------------------------------ parts of texts

    def _texts(
        self, params: list[str], loops: list[tuple[str, int]], store: str, call: str
    ) -> tuple[str, str]:
        head = f"func tile({', '.join(params)}) -> ()\n"
        lines = [f"{'  ' * (depth + 1)}for {name} in 0..{size}" for depth, (name, size) in enumerate(loops)]
        indent = "  " * (len(loops) + 1)
        kinds = {name: "reduce" if name == "k" else "spatial" for name, _ in loops}
        iters = ", ".join(f"v{name}: {kinds[name]} {size} = {name}" for name, size in loops)
        read = [text for text in _accesses(store) if text != _accesses(store)[0]]
        lines.append(f"{indent}block tile({iters})")
        lines += [f"{indent}  reads {', '.join(read)}"] if read else []
        lines += [f"{indent}  writes {_accesses(store)[0]}", f"{indent}  {store}"]
        lane = f"  for lane in 0..{self.unit.lanes} bound(threadIdx.x)\n    {call}\n"
        return head + "\n".join(lines) + "\n", head + lane

    def _fragment(self, name: str, part: str) -> str:
        fragment = wmma.fragment_of(self.unit, part)
        kind = self.unit.total if part == "c" else self.unit.factor
        shape = ", ".join(str(item.extent) for item in fragment.lane_modes)
        return f"{name}: {kind}[{shape}, {fragment.registers}] @fragment lane_map {self.unit.name}.{part}"

    def _memory(self, name: str, part: str) -> str:
        rows, columns = wmma.tile_shape(self.unit, part)
        kind = self.unit.total if part == "c" else self.unit.factor
        return f"{name}: {kind}[{rows}, {columns}] @shared"

    def _of_lane(self, name: str, fragment: Fragment) -> str:
        """The first element that a lane holds of a fragment."""
        lanes = [digit_of_lane(item, self.unit.lanes) for item in fragment.lane_modes]
        return f"{name}[{', '.join(lanes)}, 0]"


def _loops(name: str, modes: Modes) -> list[tuple[str, int]]:
    return [(f"{name}{number}", item.extent) for number, item in enumerate(modes)]


def _own(name: str, modes: Modes) -> list[str]:
    """The digits as iteration variables of their own."""
    return [f"v{name}{number}" for number, _ in enumerate(modes)]


def _flat(name: str, modes: Modes) -> str:
    """The number that the digits are."""
    return number_text(_own(name, modes), modes)


def _held(name: str, fragment: Fragment, rows: list[str], columns: list[str]) -> str:
    return f"{name}[{', '.join(fragment.held_at(rows, columns))}]"


def _accesses(text: str) -> list[str]:
    """The accesses in the text of a store, what it writes first."""
    found = []
    while "[" in text:
        at, end = text.index("["), text.index("]")
        found.append(text[at - 1 : end + 1])
        text = text[end + 1 :]
    return found
