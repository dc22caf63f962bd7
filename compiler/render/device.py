"""Flat loops as device functions: each outermost loop nest of a kernel is one launch.

    tk_k0_0(b0, b2)      the first nest of kernel 0, on those parameters of the kernel that it touches

On devices that bind loops to threads, the position along a hardware axis takes the place of the loop, and
the extents of these loops are those of the launch. On others (the cores of a processor behind a device's
interface) the blocks, of one thread each, deal out the iterations of an outermost parallel loop among them.
Their private arrays lie in what the threads of a block share, or in global memory where they are too large.

The blocks of a cluster stand side by side along z. Memory of scope `cluster` is a shared array of each block;
what another block holds is read from where it has it. Blocks that make parts stand there, too; no pointer
says of memory which the last of them reads that others do not write it.

A function of one sample of a free batch is launched with as many times its blocks along z as there are
samples; each block finds the memory of its sample first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from compiler.core.diagnostics import InternalError
from compiler.core.node import IRNode
from compiler.core.target import TargetFacts
from compiler.core.types import dtype
from compiler.loops.ir import (
    CLUSTER,
    CONSTANT,
    FRAGMENT,
    GLOBAL,
    PART,
    RANK,
    SAMPLES,
    SCRATCH,
    SHARED,
    Alloc,
    AsyncCommit,
    AsyncCopy,
    AsyncWait,
    AtomicUpdate,
    Barrier,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    ForKind,
    Func,
    LastBlock,
    Seq,
    Stmt,
    Var,
    const,
    statements,
)
from compiler.loops.linear import Linear
from compiler.loops.matrix_units import UNITS
from compiler.loops.matrix_units.tile_calls import memory_of
from compiler.loops.queries import buffer_bytes, int_of
from compiler.render.cstyle import FunctionPrinter, KernelPrinter, stripped
from compiler.render.host import PlanGridEnd
from compiler.render.launch import (
    AXES,
    DeviceText,
    Launch,
    bound_extent,
    is_grid,
    nests_of,
    passed_on,
    plan_grid_ends,
    room_for,
    sample_steps,
)
from compiler.render.loop_indices import IndexPrinter
from compiler.render.matrix_loads import LANES, row_loads
from compiler.render.matrix_text import check_tile
from compiler.render.resident import resident_blocks, waves_at_once
from compiler.render.vocabulary import (
    LOCAL,
    TILES,
    Bounds,
    CopyWords,
    DeviceWords,
    Dim3,
    Vocabulary,
    memory_type,
    narrowed,
)

_OWN = "own"
"""The parameter that points to the global memory of blocks."""
_SHORT_INDEX = 2**31
"""Buffers with at least so many elements need indices of 64 bits."""


def render_launches(func: Func, number: int, words: Vocabulary, facts: TargetFacts) -> DeviceText:
    """Print a lowered Func (flat buffers, no blocks) as the device functions `tk_k<number>_<launch>`."""
    if any((int_of(item.shape[0]) or 0) >= _SHORT_INDEX for item in func.params):
        words = replace(words, index="int64_t")
    texts, launches = [], []
    for count, nest in enumerate(nests_of(func.body, facts)):
        printer = KernelPrinter(func, f"tk_k{number}_{count}", words, facts)
        text, launch = _LaunchPrinter(printer, facts).print(nest)
        texts.append(text)
        launches.append(launch)
    return DeviceText("\n".join(texts), tuple(launches))


class _LaunchPrinter(IndexPrinter):
    """Prints one device function."""

    def __init__(self, kernel: KernelPrinter, facts: TargetFacts) -> None:
        super().__init__(kernel, carries=facts.binds_threads)
        assert self.words.device is not None
        self.device: DeviceWords = self.words.device
        self._facts = facts
        self._scopes: dict[Buffer, str] = {}
        self._shared_bytes = 0
        self._asks = False
        self._tiled: set[str] = set()
        self._block_bytes = 0
        self._block_used = 0
        self._extents: dict[str, int] = {}
        self._begins = False
        self._steps = sample_steps(kernel.func)
        self._has_samples = SAMPLES in dict(kernel.func.attrs)
        self._ends: list[PlanGridEnd] = []
        self._lanes: set[str] = set()
        self._rank = ""
        self._passed: set[Buffer] = set()

    def print(self, nest: Stmt) -> tuple[str, Launch]:
        """The text of the function that runs a nest, and how it is launched."""
        name = self.kernel_parts.name
        self._extents = {f"{unit}.{axis}": 1 for unit in ("blockIdx", "threadIdx") for axis in AXES}
        self._extents |= {RANK: 1, PART: 1}
        self._bind(nest)
        self._passed = passed_on(nest)
        room = self._facts.limit("shared_bytes") or 0
        self._asks = self._shared_of(nest) > room
        self._tiled = {one.alias_of or one.name for item in nest.walk() for one in memory_of(item)}
        scratch = self._scratch_of(nest)
        self._block_bytes = scratch if scratch > room else 0
        used = {item for item in nest.walk() if isinstance(item, Buffer)}
        numbered = [(n, item) for n, item in enumerate(self.kernel_parts.func.params) if item in used]
        params = [f"{self.pointer_type(item)}{self._restrict(item)} b{n}" for n, item in numbered]
        self.pointers.update({item: f"b{n}" for n, item in numbered})
        if self._block_bytes:
            bytes_there = self.device.pointer(self.words.memory["u8"], GLOBAL)
            params.append(f"{bytes_there}{self.words.restrict} {_OWN}")
        self.writer.open(*(f"b{n}" for n, _ in numbered))
        self._find_sample(numbered)
        self._begins = bool(self.device.begin)
        if is_grid(nest):
            assert isinstance(nest, For)
            self._dealt(nest)
        else:
            self.stmt(nest)
        self._begin()
        if self._extents[RANK] > 1:
            self.writer.line(self.device.end)
        self.writer.close()
        grid, block = self._dims("blockIdx"), self._dims("threadIdx")
        resident = resident_blocks(nest, grid, block, self._facts)
        waves = waves_at_once(nest, resident, block, self._facts)
        bounds = Bounds(block, resident, self._extents[RANK], waves)
        head = self.device.kernel(name, params, bounds)
        sizes = " ".join(f"b{n}[{self._size(item)}]" for n, item in numbered)
        text = "\n".join([f"// {name}: {sizes}", f"{head} {{", *self.writer.lines, "}", ""])
        taken = tuple(n for n, _ in numbered)
        elastic = is_grid(nest)
        dynamic = self._shared_bytes if self._asks and self.device.shared_at is not None else 0
        shared, own, ends = self._shared_bytes, self._block_bytes, tuple(self._ends)
        return text, Launch(name, grid, block, shared, taken, elastic, own, dynamic, ends)

    def _find_sample(self, numbered: Sequence[tuple[int, Buffer]]) -> None:
        """Pointers to the sample that a block is for, in parameters that hold all of them."""
        axis, blocks = self.device.axes["blockIdx.z"], self._dims("blockIdx")[2]
        sample = f"({self.words.memory['i64']})({axis}{f' / {blocks}' if blocks > 1 else ''})"
        for n, item in numbered:
            if step := self._steps.get(item):
                kind, name = f"{self.pointer_type(item)}{self._restrict(item)}", f"b{n}s"
                self.pointers[item] = name
                self.writer.declare(name, f"{kind} {name} = b{n} + {sample} * {step};")

    def _size(self, item: Buffer) -> str:
        """Elements of a parameter, and how many more for each further sample: so many blocks along z."""
        step = self._steps.get(item)
        return f"{int_of(item.shape[0])}" + (f"+{step}/{self._dims('blockIdx')[2]}" if step else "")

    def _position(self, tag: str) -> str:
        """A block's or thread's position along an axis, within its sample."""
        whole = self.device.axes[tag]
        along_z = tag in ("blockIdx.z", RANK, PART)
        return f"{whole} % {self._extents[tag]}" if self._has_samples and along_z else whole

    def _shared_of(self, nest: Stmt) -> int:
        """Bytes of all arrays that the threads of a block share."""
        arrays = [item.buffer for item in statements(nest) if isinstance(item, Alloc)]
        own = [item for item in arrays if item.scope in (SHARED, CLUSTER) and item.alias_of is None]
        told = LastBlock.SHARED_BYTES * sum(isinstance(item, LastBlock) for item in statements(nest))
        return told + sum(room_for(self._part(item) * item.dtype.bytes) for item in own)

    def _part(self, buffer: Buffer) -> int:
        """Elements of a shared buffer that one block holds."""
        size = int_of(buffer.shape[0])
        if size is None:
            raise InternalError("a shared buffer has no fixed size", where=buffer.name)
        return size // self._extents[RANK] if buffer.scope == CLUSTER else size

    def _scratch_of(self, nest: Stmt) -> int:
        """Bytes of the private arrays that no thread's stack has room for, of a device without threads."""
        if self._facts.binds_threads:
            return 0
        arrays = [item.buffer for item in statements(nest) if isinstance(item, Alloc)]
        own = [buffer_bytes(item) for item in arrays if item.scope == SCRATCH and item.alias_of is None]
        return sum(room_for(size) for size in own if size > self.kernel_parts.stack_bytes)

    def _bind(self, nest: Stmt) -> None:
        """Learn the extents of the launch."""
        if is_grid(nest):
            assert isinstance(nest, For)
            self._extents["blockIdx.x"] = bound_extent(nest)
            return
        bound = [item for item in statements(nest) if isinstance(item, For) and item.kind is ForKind.BOUND]
        for item in bound:
            assert item.tag is not None
            self._extents[item.tag] = max(self._extents[item.tag], bound_extent(item))
            if [one.tag for one in bound].count(item.tag) == 1:
                self._ends += plan_grid_ends(item, has_samples=self._has_samples)

    def _dims(self, unit: str) -> Dim3:
        x, y, z = (self._extents[f"{unit}.{axis}"] for axis in AXES)
        return x, y, z * self._extents[RANK] * self._extents[PART] if unit == "blockIdx" else z

    # ------------------------------------------------------------ values

    def operands(self, expr: Call) -> list[str]:
        """Those of a matrix unit come from shared memory by rows where they lie so."""
        unit = UNITS.get(expr.name)
        if unit is None or self.device.load_matrices is None or not self._lanes:
            return super().operands(expr)
        total, *rest = expr.args
        count, most = unit.operands()[0], max((unit.made_of or unit).operands())
        sides = (rest[:count], rest[count:])
        parts = (side[at : at + most] for side in sides for at in range(0, len(side), most))
        return [self.as_in_memory(total), *(item for part in parts for item in self._loaded(part))]

    def _loaded(self, operands: Sequence[Expr]) -> list[str]:
        """Operands of a fragment."""
        numbers = {name: const(value) for name, value in self.values.items() if isinstance(value, int)}
        found = row_loads(operands, self._lanes, numbers, self.sim)
        if found is None or self.device.load_matrices is None:
            return [self.as_in_memory(item) for item in operands]
        text = self.device.load_matrices(found.count, self.address(found.buffer, found.index), found.turned)
        kind = dtype("u32", found.count)
        # each word is a use: what is loaded at once is not loaded once for each
        words = [self.share(found.buffer, kind, text) for _ in range(found.count)]
        parts = [f"{word}.at[{n}]" if found.count > 1 else word for n, word in enumerate(words)]
        return [self._of_word(item, part) for item, part in zip(operands, parts, strict=True)]

    def _of_word(self, operand: Expr, word: str) -> str:
        """An operand as it lies in memory, from its four bytes; rounded where it is."""
        load = operand.value if isinstance(operand, Cast) else operand
        value = f"{self.words.typed('bitcast', memory_type(load.dtype))}({word})"
        return narrowed(operand.dtype, value) if isinstance(operand, Cast) else value

    # ------------------------------------------------------------ statements

    def stmt(self, item: Stmt) -> None:
        """Print one statement; `begin` stands in front of the first that uses what launches make."""
        if self._begins and not self._goes_on(item) and self._uses_made(item):
            self._begin()
        super().stmt(item)

    def _begin(self) -> None:
        if self._begins:
            self.writer.line(self.device.begin)
        self._begins = False

    def _goes_on(self, item: Stmt) -> bool:
        """Whether all threads get to the statements in it, one after the other."""
        if isinstance(item, For):
            whole = item.kind is ForKind.BOUND and bound_extent(item) == self._extents.get(item.tag or "")
            return whole or (item.kind is ForKind.UNROLLED and isinstance(item.extent, Const))
        return isinstance(item, Seq | Alloc)

    def _uses_made(self, item: Stmt) -> bool:
        """Whether it reads or writes a parameter that is no constant of the model."""
        made = {one for one in self.kernel_parts.func.params if one.scope != CONSTANT}
        return any(isinstance(one, Buffer) and one in made for one in item.walk())

    def _for_bound(self, item: For) -> None:
        if item.kind is not ForKind.BOUND:
            super()._for(item)
            return
        assert item.tag is not None
        outer, extent = self.sim, bound_extent(item)
        if extent == self._extents[item.tag]:
            self._along(item.tag, item)
        else:
            with self.writer.braces(f"if ({self._position(item.tag)} < {extent}) "):
                self._along(item.tag, item)
        self.sim = outer

    def _dealt(self, item: For) -> None:
        """The iterations of a parallel loop that are this block's, of however many blocks."""
        extent, axes = bound_extent(item), self.device.axes
        self.sim = self.sim.bind(item.var.name, 0, extent - 1)
        var, end = self.writer.fresh("i"), self.writer.fresh("n")
        self.values[item.var.name] = var
        block, blocks = axes["blockIdx.x"], axes["gridDim.x"]
        first, last = (f"{number} * {extent} / {blocks}" for number in (block, f"({block} + 1)"))
        head = f"{self.words.index} {var} = {first}, {end} = {last}; {var} < {end}; ++{var}"
        with self.writer.braces(f"for ({head}) ", var):
            self.stmt(item.body)

    def _along(self, tag: str, item: For) -> None:
        """The body of a loop at this thread's or block's position along an axis."""
        self.sim = self.sim.bind(item.var.name, 0, bound_extent(item) - 1)
        var = self.writer.fresh("i")
        self.values[item.var.name] = var
        if tag == RANK:
            self._rank = item.var.name
        if tag == "threadIdx.x" and self._extents[tag] == LANES == bound_extent(item):
            self._lanes.add(item.var.name)
        self.writer.declare(var, f"const {self.words.index} {var} = {self._position(tag)};")
        self.stmt(item.body)

    def _barrier(self, item: Barrier) -> None:
        self._forget()
        self.writer.line(self.device.barriers[item.scope])

    def _forget(self) -> None:
        """What was loaded before may have changed from here on."""
        for known in [*self.pointers]:
            self.writer.stored(self.pointers[known])

    def _last_block(self, item: LastBlock) -> None:
        if self.device.last_block is None:
            raise InternalError("the language has no last of several blocks", where=self.words.name)
        told = Buffer("told", dtype("u32"), (const(1),), SHARED)
        self._shared_array(told, 1, SHARED)
        words = (self.address(item.buffer, item.indices[0]), item.count, self.pointers[told])
        self._forget()
        with self.writer.braces(f"if ({self.device.last_block(*words)}) "):
            self.stmt(item.body)

    def _async_copy(self, item: AsyncCopy) -> None:
        words = self._copies()
        lanes = int_of(item.target.extent[0])
        if lanes is None:
            raise InternalError("a copy has no fixed size", where=item.target.buffer.name)
        to, source = (self.address(box.buffer, box.begin[0]) for box in (item.target, item.source))
        size = lanes * item.target.buffer.dtype.bytes
        where = self.condition(item.where)
        if isinstance(where, Const) and where.value:
            self.writer.line(words.copy(to, source, size))
        else:
            self.writer.line(words.fill(to, source, size, stripped(self(where))))
        self.writer.stored(self.pointers[item.target.buffer])

    def _async_commit(self, _item: AsyncCommit) -> None:
        self.writer.line(self._copies().commit)

    def _async_wait(self, item: AsyncWait) -> None:
        self.writer.line(self._copies().wait(item.pending))

    def _copies(self) -> CopyWords:
        if self.device.copies is None:
            raise InternalError("the language has no asynchronous copies", where=self.words.name)
        return self.device.copies

    def _atomic(self, item: AtomicUpdate) -> None:
        address = self.address(item.buffer, item.indices[0])
        text = self.device.atomic(item.op, item.buffer.dtype, address, stripped(self(item.value)))
        self.writer.line(f"{text};")
        self.writer.stored(self.pointers[item.buffer])

    # ------------------------------------------------------------ buffers

    def place(self, buffer: Buffer, index: Expr) -> tuple[str, str]:
        """As for any buffer; in memory of a cluster, the block that holds an element comes first."""
        if buffer.scope != CLUSTER:
            return super().place(buffer, index)
        part, place = self._part(buffer), self.sim.linear(index)
        ranks = {atom: count // part for atom, count in place.terms.items() if count % part == 0}
        inside = {atom: count for atom, count in place.terms.items() if atom not in ranks}
        rank = self.sim.emit(Linear(ranks, place.constant // part))
        pointer, offset = super().place(buffer, self.sim.emit(Linear(inside, place.constant % part)))
        if isinstance(rank, Var) and rank.name == self._rank:
            return pointer, offset
        if self.device.in_block is None:
            raise InternalError("the language has no clusters of blocks", where=self.words.name)
        return self.device.in_block(pointer, stripped(self(rank))), offset

    def address(self, buffer: Buffer, index: Expr) -> str:
        """Of one element; where tiles of a matrix unit are objects, of the one that holds it."""
        if buffer.scope == FRAGMENT and self.device.fragment is not None:
            index = self.sim.simplify(index // self.device.fragment(buffer.lane_map or "")[1])
        return super().address(buffer, index)

    def _restrict(self, buffer: Buffer) -> str:
        """Not of what others made where `begin` waits for it: reads of it would be taken in front of that.

        Nor of what the last block reads of others. Nothing is lost where the only pointer is const: what is
        written is told apart from all else by its own.
        """
        made = buffer.scope != CONSTANT and buffer not in self.kernel_parts.written
        apart = buffer not in self._passed and not (self.device.begin and made)
        return self.words.restrict if apart else ""

    def pointer_type(self, buffer: Buffer) -> str:
        const = "" if buffer in self.kernel_parts.written else "const "
        return self.device.pointer(f"{const}{self.element_type(buffer)}", self._scope_of(buffer))

    def _scope_of(self, buffer: Buffer) -> str:
        return self._scopes.get(buffer, buffer.scope)

    def _alloc_device(self, item: Alloc) -> None:
        if item.buffer.scope in (SHARED, CLUSTER) and item.buffer.alias_of is None:
            self._shared_array(item.buffer, self._part(item.buffer), SHARED)
            self.stmt(item.body)
            return
        super()._alloc(item)

    def _declare_array(self, buffer: Buffer, size: int) -> None:
        name = self._named(buffer)
        if buffer.scope == FRAGMENT:
            check_tile(buffer.lane_map or "", self.words.name)
            if self.device.fragment is not None:
                kind, held = self.device.fragment(buffer.lane_map or "")
                self.writer.declare(name, f"{kind} {name}[{size // held}];")
                return
        self.writer.declare(name, self.device.array(self.element_type(buffer), name, size, buffer.scope))

    def _declare_scratch(self, buffer: Buffer, size: int) -> None:
        """A private buffer that is too large for a thread's stack."""
        if self._facts.binds_threads:
            self._declare_array(buffer, size)
            return
        if self._block_bytes:
            self._part_of_block(buffer, size)
            return
        self._scopes[buffer] = LOCAL
        self._shared_array(buffer, size, LOCAL)

    def _part_of_block(self, buffer: Buffer, size: int) -> None:
        """A private buffer in the global memory that a block has to itself: together they need too much."""
        self._scopes[buffer] = GLOBAL
        name = self._named(buffer)
        kind = self.device.pointer(self.element_type(buffer), GLOBAL)
        axes = self.device.axes
        block = axes["blockIdx.x"]
        if self._has_samples:
            block = f"({axes['blockIdx.z']} * {axes['gridDim.x']} + {block})"
        place = f"({self.words.memory['i64']}){block} * {self._block_bytes}"
        start = f"({kind.rstrip()})({_OWN} + {place} + {self._block_used})"
        self._block_used += room_for(size * buffer.dtype.bytes)
        self.writer.declare(name, f"{kind}{self.words.restrict} {name} = {start};")

    def _shared_array(self, buffer: Buffer, size: int, scope: str) -> None:
        name = self._named(buffer)
        place = self.writer.scopes[0]
        place.variables.add(name)
        ctype = self.element_type(buffer)
        if self._asks and self.device.shared_at is not None:
            place.declarations.append(self.device.shared_at(ctype, name, size, self._shared_bytes))
        else:
            scope = TILES if buffer.name in self._tiled else scope
            place.declarations.append(self.device.array(ctype, name, size, scope))
        self._shared_bytes += room_for(size * buffer.dtype.bytes)

    def _declare_alias(self, buffer: Buffer) -> None:
        """A part of another private buffer, in the same kind of memory."""
        base, text = next((b, text) for b, text in self.pointers.items() if b.name == buffer.alias_of)
        scope = self._scopes[buffer] = self._scope_of(base)
        name = self._named(buffer)
        kind = self.device.pointer(self.element_type(buffer), scope)
        raw = self.device.pointer(self.words.memory["u8"], scope)
        offset = (int_of(buffer.offset) or 0) * buffer.dtype.bytes
        self.writer.declare(name, f"{kind}{name} = ({kind.rstrip()})(({raw.rstrip()}){text} + {offset});")

    STATEMENTS: ClassVar[dict[type[IRNode], Callable[..., Any]]] = {
        **FunctionPrinter.STATEMENTS,
        For: _for_bound,
        Alloc: _alloc_device,
        Barrier: _barrier,
        LastBlock: _last_block,
        AtomicUpdate: _atomic,
        AsyncCopy: _async_copy,
        AsyncCommit: _async_commit,
        AsyncWait: _async_wait,
    }
