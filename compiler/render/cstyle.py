"""Flat loops as C text: one kernel function, and one body function for each parallel loop.

    extern "C" void tk_k0(void *const *bufs, tk_exec *exec)       the kernel
    static void tk_k0_p0(bufs, env, begin, end, scratch, tid)     iterations begin .. end-1 of a parallel loop

Unrolled loops are expanded here, with their variables put in as numbers; the elements of register buffers
are variables. Identifiers are numbered: nothing of a model's text reaches the code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, TypeGuard

from compiler.core.diagnostics import InternalError
from compiler.core.node import IRNode
from compiler.core.target import TargetFacts
from compiler.core.types import INDEX, dtype
from compiler.loops.annotations import APART
from compiler.loops.ir import (
    REGISTER,
    AddressOf,
    Alloc,
    Binary,
    Buffer,
    Call,
    Const,
    Evaluate,
    Expr,
    For,
    ForKind,
    Func,
    If,
    Let,
    Load,
    Ramp,
    Scoped,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    const,
)
from compiler.loops.queries import int_of, variables
from compiler.loops.regions import variables_of, writes_of
from compiler.loops.simplify import Simplifier
from compiler.loops.walk import scoped
from compiler.render.expressions import Expressions, is_rounded
from compiler.render.vocabulary import NARROW_FLOATS, Vocabulary, memory_type, narrowed

_COMPOUND = {"add": "+=", "sub": "-=", "mul": "*="}
SCRATCH_ALIGNMENT = 64
_SHORT = 2**31


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel as text: `scratch_bytes` is what each thread needs."""

    name: str
    text: str
    scratch_bytes: int


def render_kernel(func: Func, number: int, words: Vocabulary, facts: TargetFacts) -> KernelText:
    """Print a lowered Func (flat buffers, no blocks) as kernel `tk_k<number>`.

    The argument `bufs[i]` of the kernel is the memory of `func.params[i]`. The text needs `words.prelude` in
    front of it once per file.
    """
    kernel = KernelPrinter(func, f"tk_k{number}", words, facts)
    kernel.functions.append(FunctionPrinter(kernel, in_body=False).kernel())
    return KernelText(kernel.name, "\n".join(kernel.functions), kernel.scratch_bytes)


class KernelPrinter:
    """What the functions of one kernel share."""

    def __init__(self, func: Func, name: str, words: Vocabulary, facts: TargetFacts) -> None:
        self.func = func
        self.name = name
        self.words = words
        self.stack_bytes = facts.limit("stack_bytes") or 0
        self.written = {buffer for item in func.body.walk() for buffer in _written(item, words)}
        self.functions: list[str] = []
        self.scratch_bytes = 0


def _written(item: IRNode, words: Vocabulary) -> tuple[Buffer, ...]:
    """What a statement or a call writes; helpers write to the place that they get first."""
    if isinstance(item, Call) and item.name in words.helpers and isinstance(item.args[0], AddressOf):
        return (item.args[0].buffer,)
    return tuple(box.buffer for box in writes_of(item))


class FunctionPrinter(Expressions):
    """Prints one C function."""

    def __init__(self, kernel: KernelPrinter, *, in_body: bool) -> None:
        super().__init__(kernel.words)
        self.kernel_parts = kernel
        self._in_body = in_body
        self._scratch_used = 0
        self._uses_scratch = False

    # ------------------------------------------------------------ functions

    def kernel(self) -> str:
        """The kernel itself."""
        parts = self.kernel_parts
        self.writer.open()
        for number, item in enumerate(parts.func.dims):
            self.values[item.var.name] = self._declare(f"tk_symbols(exec)[{number}]")
        self._params(parts.func.body)
        at = len(self.writer.scopes[-1].declarations)
        self.stmt(parts.func.body)
        if self._uses_scratch:
            scratch = "unsigned char *const scratch = tk_scratch(exec);"
            self.writer.scopes[-1].declarations.insert(at, scratch)
        self.writer.close()
        head = f'extern "C" void {parts.name}(void *const *bufs, tk_exec *exec)'
        return _function(head, self.writer.lines, ("bufs", "exec"))

    def body(self, loop: For, name: str, captured: list[str], sim: Simplifier) -> str:
        """The body function of a parallel loop; `captured` are the enclosing variables, in order of `env`."""
        self.sim = sim
        self.writer.open()
        for number, item in enumerate(captured):
            self.values[item] = self._declare(f"env[{number}]")
        self._params(loop.body)
        var = self.writer.fresh("i")
        self.values[loop.var.name] = var
        with self.writer.braces(f"for (int64_t {var} = begin; {var} < end; ++{var}) ", var):
            self.stmt(loop.body)
        self.writer.close()
        head = (
            f"static void {name}(void *const *bufs, const int64_t *env, int64_t begin, int64_t end,\n"
            f"    unsigned char *scratch, int tid)"
        )
        return _function(head, self.writer.lines, ("bufs", "env", "scratch", "tid"))

    def _declare(self, text: str) -> str:
        name = self.writer.fresh("n")
        self.writer.declare(name, f"const int64_t {name} = {text};")
        return name

    def _params(self, body: Stmt) -> None:
        """Pointers for those parameters that the function itself accesses."""
        used = _direct_buffers(body)
        for number, buffer in enumerate(self.kernel_parts.func.params):
            if buffer in used:
                kind = self.pointer_type(buffer)
                self.pointers[buffer] = f"b{number}"
                self.writer.declare(
                    f"b{number}", f"{kind} {self.words.restrict} b{number} = ({kind})bufs[{number}];"
                )

    def element_type(self, buffer: Buffer) -> str:
        """The C type of one element in memory."""
        if buffer.dtype.lanes > 1:
            return self.words.vector(memory_type(buffer.dtype))
        return self.words.memory[buffer.dtype.name]

    def pointer_type(self, buffer: Buffer) -> str:
        kind = self.element_type(buffer)
        return f"{kind} *" if buffer in self.kernel_parts.written else f"const {kind} *"

    # ------------------------------------------------------------ statements

    def stmt(self, item: Stmt) -> None:
        """Print one statement in the current scope."""
        rule = self.STATEMENTS.get(type(item))
        if rule is None:
            raise InternalError(f"cannot print the statement {type(item).__name__}")
        rule(self, item)

    def _scope(self, body: Stmt, *variables: str) -> None:
        self.writer.open(*variables)
        self.stmt(body)
        self.writer.close()

    def _seq(self, item: Seq | Scoped) -> None:
        for part in item.bodies():
            self.stmt(part)

    def _for(self, item: For) -> None:
        outer = self.sim
        if item.kind is ForKind.UNROLLED and isinstance(item.extent, Const):
            self._unrolled(item, int(item.extent.value))
            return
        if item.kind is ForKind.BOUND:
            raise InternalError("a loop bound to a hardware axis has no place in host code")
        high = self.sim.interval(item.extent)[1]
        if high is not None and high > 0:
            self.sim = self.sim.bind(item.var.name, 0, high - 1)
        if item.kind is ForKind.PARALLEL and not self._in_body:
            self._parallel(item)
        else:
            self._serial(item)
        self.sim = outer

    def _unrolled(self, item: For, extent: int) -> None:
        """Each iteration written out; those that stay apart each behind a compiler's fence."""
        apart = dict(item.annotations).get(APART)
        for number in range(extent):
            self.values[item.var.name] = number
            if not apart:
                self.stmt(item.body)
                continue
            if number:
                self.writer.line(self.words.apart)
            with self.writer.braces(""):
                self.stmt(item.body)

    def _serial(self, item: For) -> None:
        extent = self(item.extent)
        var = self.writer.fresh("i")
        self.values[item.var.name] = var
        if any(isinstance(part, For) and part.kind is ForKind.UNROLLED for part in item.body.walk()):
            self.writer.line(self.words.rolled)
        self.enter_loop(item, var)
        with self.writer.braces(lambda: self.loop_head(item, var, extent), var):
            self.stmt(item.body)

    def enter_loop(self, item: For, var: str) -> None:
        """A loop begins whose variable is `var`: nothing to do."""

    def loop_head(self, _item: For, var: str, extent: str) -> str:
        """The head of a loop, once its body is written."""
        return f"for ({self.words.index} {var} = 0; {var} < {extent}; ++{var}) "

    def _parallel(self, item: For) -> None:
        parts = self.kernel_parts
        captured = sorted(name for name in _free(item.body, item.var) if name in self.values)
        name = f"{parts.name}_p{len(parts.functions)}"
        place = len(parts.functions)
        parts.functions.append("")  # its place: before the functions that come after it
        function = FunctionPrinter(parts, in_body=True)
        parts.functions[place] = function.body(item, name, captured, self.sim)
        env = "nullptr"
        if captured:
            env = self.writer.fresh("env")
            values = ", ".join(str(self.values[item]) for item in captured)
            self.writer.line(f"const int64_t {env}[] = {{{values}}};")
        self.writer.line(f"tk_parallel(exec, {name}, bufs, {env}, {self(item.extent)});")

    def _if(self, item: If) -> None:
        cond = self.condition(item.cond)
        if isinstance(cond, Const):
            chosen = item.then if cond.value else item.orelse
            if chosen is not None:
                self.stmt(chosen)
            return
        self.writer.line(f"if ({stripped(self(cond))}) {{")
        self._scope(item.then)
        if item.orelse is not None:
            self.writer.line("} else {")
            self._scope(item.orelse)
        self.writer.line("}")

    def _let(self, item: Let) -> None:
        if item.var.dtype == INDEX:
            self._let_index(item)
            return
        with self.writer.braces(""):
            name = self.writer.fresh("x")
            self.writer.line(f"const {self.words.type_of(item.var.dtype)} {name} = {self(item.value)};")
            self.values[item.var.name] = name
            self._scope(item.body, name)

    def _let_index(self, item: Let) -> None:
        """A position, whose range is known where that of its parts is; it may be a value, too."""
        outer = self.sim
        low, high = self.sim.interval(item.value)
        kind = self.words.types["i64"]
        text = stripped(self(item.value))
        if low is not None and high is not None:
            self.sim = self.sim.bind(item.var.name, low, high)
            kind = self.words.index if low >= -_SHORT and high < _SHORT else kind
        name = self.writer.fresh("n")
        with self.writer.braces(""):
            self.writer.declare(name, f"const {kind} {name} = {text};")
            self.values[item.var.name] = name
            self.stmt(item.body)
        self.sim = outer

    def _store(self, item: Store) -> None:
        buffer, index = item.buffer, item.indices[0]
        name = self.register(buffer, index.base if isinstance(index, Ramp) else index)
        if name is not None:
            value = item.value if item.mask is None else Select(item.mask, item.value, Load(buffer, (index,)))
            self._assign(name, item, value)
        elif index.dtype.lanes == 1:
            self._store_element(item)
        else:
            self._store_vector(item)
        if name is None:
            self.writer.stored(self.pointers[buffer])

    def _assign(self, target: str, item: Store, value: Expr) -> None:
        """`target = value`, or `target += rest` where the value says so."""
        if isinstance(value, Binary) and value.op in _COMPOUND:
            here = Load(item.buffer, item.indices)
            rest = value.b if value.a == here else value.a if value.op != "sub" and value.b == here else None
            if rest is not None:
                self.writer.line(f"{target} {_COMPOUND[value.op]} {stripped(self(rest))};")
                return
        self.writer.line(f"{target} = {stripped(self(value))};")

    def _store_element(self, item: Store) -> None:
        buffer, value = item.buffer, item.value
        target = self.element(buffer, item.indices[0])
        if memory_type(buffer.dtype) == buffer.dtype:
            self._assign(target, item, value)
        else:
            self.writer.line(f"{target} = {stripped(self._memory_value(buffer, value))};")

    def _memory_value(self, buffer: Buffer, value: Expr) -> str:
        """A value as it lies in memory."""
        if buffer.dtype.is_bool and value.dtype.lanes > 1:
            return f"(-{self.mask(value, 8)})"
        value = self.guarded(self.decided(value))
        if value.dtype == buffer.dtype.with_lanes(value.dtype.lanes) and (text := self.load_or_zero(value)):
            return text
        if self._is_copied_or_constant(value):
            cond = self(self.condition(value.cond))
            return f"({cond} ? {self.as_in_memory(value.a)} : {self._memory_value(buffer, value.b)})"
        if self._is_copied(value) or is_rounded(value):
            return self.as_in_memory(value)
        return narrowed(value.dtype, self(value))

    def _is_copied_or_constant(self, value: Expr) -> TypeGuard[Select]:
        """Whether a narrow float is copied where a condition holds; elsewhere it is a constant."""
        return (
            isinstance(value, Select)
            and value.cond.dtype.lanes == 1
            and isinstance(value.b, Const)
            and self._is_copied(value.a)
        )

    def _is_copied(self, value: Expr) -> bool:
        """Whether a narrow float goes from memory to memory: its bits do, without a conversion to f32."""
        if not isinstance(value, Load) or value.dtype.name not in NARROW_FLOATS or value.mask is not None:
            return False
        index = value.indices[0]
        return not self.register(value.buffer, index.base if isinstance(index, Ramp) else index)

    def _store_vector(self, item: Store) -> None:
        buffer, index = item.buffer, item.indices[0]
        kind = buffer.dtype.with_lanes(index.dtype.lanes)
        if item.mask is not None:
            self._store_masked(item)
            return
        value = stripped(self._memory_value(buffer, item.value))
        if isinstance(index, Ramp) and index.stride == const(1):
            aligned = self.words.store_aligned if self.whole_vectors(index) else None
            text = (aligned or self.words.store)(kind, self.address(buffer, index.base), value)
            self.writer.line(f"{text};")
            return
        if isinstance(index, Ramp):
            base = self.address(buffer, index.base)
            text = self.words.store_strided(kind, base, self(index.stride), value)
        else:
            text = self.words.scatter(kind, self.pointers[buffer], self(index), value)
        self.writer.line(f"{text};")

    def _store_masked(self, item: Store) -> None:
        assert item.mask is not None
        index, lanes = item.indices[0], item.indices[0].dtype.lanes
        count = self.count(item.mask)
        if isinstance(count, int) and count <= 0:
            return
        if isinstance(count, int) and count >= lanes:
            self._store_vector(item.replace(mask=None))
            return
        plain = memory_type(item.buffer.dtype) == item.buffer.dtype
        if count is not None and plain and isinstance(index, Ramp) and index.stride == const(1):
            kind, at = item.buffer.dtype.with_lanes(lanes), self.address(item.buffer, index.base)
            text = self.words.store_partial(kind, at, stripped(self(item.value)), str(count))
            self.writer.line(f"{text};")
            return
        mask = self.named(item.mask)
        value = self.writer.fresh("t")
        is_bool = item.buffer.dtype.is_bool  # a negated mask has the type of a mask, which is signed
        kind = dtype("i8", lanes) if is_bool else memory_type(item.buffer.dtype.with_lanes(lanes))
        text = stripped(self._memory_value(item.buffer, item.value))
        self.writer.line(f"const {self.words.type_of(kind)} {value} = {text};")
        for lane, element in enumerate(self.lane_elements(item.buffer, item.indices[0], lanes)):
            here = self.words.lane(value, lane)
            self.writer.line(f"if ({self.words.lane(mask, lane)}) {element} = {here};")

    # ------------------------------------------------------------ buffers

    def _alloc(self, item: Alloc) -> None:
        buffer = item.buffer
        size = int_of(buffer.shape[0])
        if size is None:
            raise InternalError("a private buffer has no fixed size", where=buffer.name)
        if buffer.scope == REGISTER:
            self._in_registers(buffer, size, item.body)
            return
        used = self._scratch_used
        if buffer.alias_of is not None:
            self._declare_alias(buffer)
        elif size * buffer.dtype.bytes <= self.kernel_parts.stack_bytes:
            self._declare_array(buffer, size)
        else:
            self._declare_scratch(buffer, size)
        self.stmt(item.body)
        self._scratch_used = used

    def _in_registers(self, buffer: Buffer, size: int, body: Stmt) -> None:
        """A statement around which the elements of a buffer are variables: those that it uses."""
        kind = self.words.type_of(buffer.dtype)
        names = [self.writer.fresh("v") for _ in range(size)]
        self.registers.update({(buffer, number): name for number, name in enumerate(names)})
        place = len(self.writer.lines)
        self.stmt(body)
        if used := [name for name in names if name in self.used_registers]:
            self.writer.line(f"{kind} {', '.join(used)};", place)

    def _named(self, buffer: Buffer) -> str:
        """The name of an array or pointer that is a private buffer."""
        name = self.pointers[buffer] = self.writer.fresh("s")
        return name

    def _declare_array(self, buffer: Buffer, size: int) -> None:
        name = self._named(buffer)
        kind = self.element_type(buffer)
        self.writer.declare(name, f"alignas({SCRATCH_ALIGNMENT}) {kind} {name}[{size}];")

    def _declare_scratch(self, buffer: Buffer, size: int) -> None:
        start = -(-self._scratch_used // SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT
        self._scratch_used = start + size * buffer.dtype.bytes
        parts = self.kernel_parts
        parts.scratch_bytes = max(parts.scratch_bytes, self._scratch_used)
        self._uses_scratch = True
        name = self._named(buffer)
        kind = self.pointer_type(buffer).removeprefix("const ")
        self.writer.declare(name, f"{kind} {self.words.restrict} {name} = ({kind})(scratch + {start});")

    def _declare_alias(self, buffer: Buffer) -> None:
        """A part of another private buffer; not `restrict`, because what they share may change owners."""
        base = next(name for item, name in self.pointers.items() if item.name == buffer.alias_of)
        name = self._named(buffer)
        kind = self.pointer_type(buffer).removeprefix("const ")
        offset = (int_of(buffer.offset) or 0) * buffer.dtype.bytes
        self.writer.declare(name, f"{kind} {name} = ({kind})((unsigned char *){base} + {offset});")

    # ------------------------------------------------------------ effects

    def _evaluate(self, item: Evaluate) -> None:
        self.writer.line(f"{stripped(self(item.value))};")

    STATEMENTS: ClassVar[dict[type[IRNode], Callable[..., Any]]] = {
        Seq: _seq,
        For: _for,
        If: _if,
        Let: _let,
        Store: _store,
        Alloc: _alloc,
        Evaluate: _evaluate,
        Scoped: _seq,
    }


def _function(head: str, lines: list[str], optional: tuple[str, ...]) -> str:
    text = "\n".join(lines)
    unused = [f"  (void){name};" for name in optional if name not in text]
    return "\n".join([f"{head} {{", *unused, *lines, "}", ""])


def stripped(text: str) -> str:
    """Without the parentheses around the whole."""
    if not (text.startswith("(") and text.endswith(")")):
        return text
    depth = 0
    for number, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if depth == 0 and number < len(text) - 1:
            return text
    return text[1:-1]


def _direct_buffers(root: Stmt) -> set[Buffer]:
    """Buffers that are accessed outside of parallel loops."""
    return {item for item, _ in scoped(root, closed=_is_parallel) if isinstance(item, Buffer)}


def _is_parallel(item: IRNode) -> bool:
    return isinstance(item, For) and item.kind is ForKind.PARALLEL


def _free(body: Stmt, var: Var) -> set[str]:
    bound = {bound.name for item in body.walk() for bound in variables_of(item)}
    return set(variables(body) - bound - {var.name})
