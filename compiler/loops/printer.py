"""Loop IR to text; the grammar is in `loops/text.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, cast

from compiler.core.diagnostics import InternalError
from compiler.core.node import SPELLED, IRNode
from compiler.core.types import BOOL, F32, INDEX, DType
from compiler.loops import ir, syntax
from compiler.loops.ir import Buffer, Const, Expr, Func, Region, Stmt
from compiler.loops.spelling import spelling_of

WIDTH = 110


def print_func(func: Func) -> str:
    """The canonical text of a function, ending in a newline."""
    out = _Printer()
    out.func(func)
    return "\n".join(out.lines) + "\n"


def print_funcs(funcs: Iterable[Func]) -> str:
    """Several functions, separated by empty lines."""
    return "\n".join(print_func(func) for func in funcs)


def print_stmt(stmt: Stmt) -> str:
    """The text of one statement, without its function."""
    out = _Printer()
    out.suite(stmt, 0)
    return "\n".join(out.lines) + "\n"


def print_head(stmt: Stmt) -> str:
    """The first line of a statement, shortened: how messages name a place."""
    if isinstance(stmt, ir.Block):
        return f"block {quote(stmt.name)}"
    out = _Printer()
    out.suite(stmt if isinstance(stmt, ir.Seq) else stmt.map_bodies(lambda _: ir.Seq(())), 0)
    head = out.lines[0]
    return head if len(head) <= WIDTH else f"{head[: WIDTH - 4]} ..."


def print_expr(expr: Expr) -> str:
    """The text of one expression."""
    return _expr(expr)[0]


@cache
def quote(name: str) -> str:
    """A name as it is written: bare where possible, between backticks where it would be a keyword."""
    if syntax.NAME.fullmatch(name) and name not in syntax.KEYWORDS:
        return name
    if "`" in name or not name.isprintable() or not name:
        raise InternalError(f"the name {name!r} has no text form", why="it is empty or holds ` or a control")
    return f"`{name}`"


# ---------------------------------------------------------------- expressions: (text, precedence)

_Text = tuple[str, int]


def _expr(expr: Expr) -> _Text:
    write = _EXPRS.get(type(expr))
    return (_spelled(expr), syntax.PRIMARY) if write is None else write(expr)


def _spelled(item: IRNode) -> str:
    """A node by its SPELLING, without the statements inside."""
    if not item.SPELLING:
        raise InternalError(f"a node of kind {type(item).__name__} has no text form")
    written, cls = "", cast(Any, type(item))
    for text, field, _, kind, optional, default in spelling_of(cls):
        value = _FIELDS[kind](getattr(item, field)) if field else ""
        left_out = optional and getattr(item, field) == default
        written += text + ("" if left_out else f" {field} {value}" if optional else value)
    return written


def _at(expr: Expr, precedence: int) -> str:
    """`expr` where something binding at `precedence` is expected."""
    text, own = _expr(expr)
    return text if own >= precedence else f"({text})"


def _list(exprs: Iterable[Expr]) -> str:
    return ", ".join([_expr(item)[0] for item in exprs])


def _literal_text(value: Const) -> _Text:
    """A literal; one with a sign binds like a unary operator."""
    kind, number = value.type, value.value
    if kind == BOOL:
        return ("true" if number else "false"), syntax.PRIMARY
    if kind.is_float:
        text, plain = float.__repr__(float(number)), F32
    else:
        text, plain = int.__repr__(int(number)), INDEX
    suffix = "" if kind == plain else f":{kind}"
    return text + suffix, syntax.UNARY if text[0] == "-" else syntax.PRIMARY


def _var(expr: ir.Var) -> _Text:
    return quote(expr.name), syntax.PRIMARY


def _binary(expr: ir.Binary) -> _Text:
    infix = syntax.INFIX.get(expr.op)
    if infix is not None:
        symbol, level = infix
        left = level + 1 if level == syntax.COMPARE else level
        return f"{_at(expr.a, left)} {symbol} {_at(expr.b, level + 1)}", level
    if expr.op == "pow":
        return f"{_at(expr.a, syntax.PRIMARY)} ** {_at(expr.b, syntax.POW)}", syntax.POW
    if expr.op in syntax.CALLED_BINARY:
        return f"{expr.op}({_list((expr.a, expr.b))})", syntax.PRIMARY
    raise InternalError(f"the binary operation {expr.op!r} has no text form")


def _unary(expr: ir.Unary) -> _Text:
    if expr.op not in syntax.PREFIX:
        raise InternalError(f"the unary operation {expr.op!r} has no text form")
    symbol, level = syntax.PREFIX[expr.op]
    first = expr.a.a if isinstance(expr.a, ir.Binary) and expr.a.op == "pow" else expr.a
    if expr.op == "neg" and isinstance(first, Const):  # else the sign would be the literal's
        return f"-({_expr(expr.a)[0]})", level
    return f"{symbol}{_at(expr.a, level)}", level


def _call(expr: ir.Call) -> _Text:
    special = expr.name in syntax.FUNCTIONS or expr.name in SPELLED or syntax.DTYPE.fullmatch(expr.name)
    name = f"`{expr.name}`" if special else quote(expr.name)
    plain = expr.args and expr.args[0].dtype == expr.type
    suffix = "" if plain else f":{expr.type}"
    return f"{name}{suffix}({_list(expr.args)})", syntax.PRIMARY


def _access(buffer: Buffer, indices: tuple[Expr, ...], mask: Expr | None, other: Expr | None) -> str:
    inner = _list(indices)
    if mask is not None:
        inner += f" where {_expr(mask)[0]}"
    if other is not None:
        inner += f" else {_expr(other)[0]}"
    return f"{quote(buffer.name)}[{inner.lstrip()}]"


_EXPRS: dict[type, Callable[[Any], _Text]] = {
    ir.Var: _var,
    ir.Const: _literal_text,
    ir.Binary: _binary,
    ir.Unary: _unary,
    ir.Select: lambda e: (f"select({_list((e.cond, e.a, e.b))})", syntax.PRIMARY),
    ir.Cast: lambda e: (f"{e.type}({_expr(e.value)[0]})", syntax.PRIMARY),
    ir.Load: lambda e: (_access(e.buffer, e.indices, e.mask, e.other), syntax.PRIMARY),
    ir.Call: _call,
    ir.AddressOf: lambda e: (f"&{_access(e.buffer, e.indices, None, None)}", syntax.PRIMARY),
}


# ---------------------------------------------------------------- declarations


def declaration(buffer: Buffer) -> str:
    """A buffer as it is declared: `x: f32[4, 8] @shared align 128`."""
    parts = [f"{quote(buffer.name)}: {buffer.dtype}[{_list(buffer.shape)}]"]
    if buffer.scope != ir.GLOBAL:
        parts.append(f"@{quote(buffer.scope)}")
    if buffer.strides:
        parts.append(f"strides [{_list(buffer.strides)}]")
    if buffer.offset is not None:
        parts.append(f"offset {_expr(buffer.offset)[0]}")
    if buffer.alias_of is not None:
        parts.append(f"alias_of {quote(buffer.alias_of)}")
    if buffer.alignment != 64:
        parts.append(f"align {buffer.alignment}")
    if buffer.lane_map is not None:
        parts.append(f"lane_map {quote(buffer.lane_map)}")
    return " ".join(parts)


def _region_text(region: Region) -> str:
    """A region as it is written: `x[i, j * 4 +: 4]`."""
    one = ir.const(1)
    spans = [
        _expr(begin)[0] if extent == one else f"{_expr(begin)[0]} +: {_expr(extent)[0]}"
        for begin, extent in zip(region.begin, region.extent, strict=True)
    ]
    return f"{quote(region.buffer.name)}[{', '.join(spans)}]"


def _note(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(int(value))
    if isinstance(value, float):
        return float.__repr__(value)
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, DType):
        return str(value)
    if isinstance(value, tuple):
        return f"({', '.join(_note(item) for item in value)}{',' if len(value) == 1 else ''})"
    raise InternalError(f"an annotation of type {type(value).__name__} has no text form")


def _notes(annotations: tuple[tuple[str, Any], ...]) -> str:
    if not annotations:
        return ""
    return " {" + ", ".join(f"{quote(name)} = {_note(value)}" for name, value in annotations) + "}"


def _typed(var: ir.Var) -> str:
    return quote(var.name) if var.type == INDEX else f"{quote(var.name)}: {var.type}"


def _kind(stmt: ir.For) -> str:
    if stmt.kind is ir.ForKind.BOUND:
        return f" bound({quote(stmt.tag)})" if stmt.tag is not None else " bound()"
    kind = "" if stmt.kind is ir.ForKind.SERIAL else f" {stmt.kind.value}"
    return kind if stmt.tag is None else f"{kind} tag({quote(stmt.tag)})"


def _iter(item: ir.Iter) -> str:
    kind = item.kind if item.var.type == INDEX else f"{item.var.type} {item.kind}"
    return f"{quote(item.var.name)}: {kind} {_expr(item.extent)[0]} = {_expr(item.binding)[0]}"


_FIELDS: dict[str, Callable[[Any], str]] = {
    "Expr": print_expr,
    "tuple[Expr, ...]": _list,
    "int": str,
    "tuple[int, ...]": lambda numbers: ", ".join(map(str, numbers)),
    "str": quote,
    "Region": _region_text,
}
"""How the fields of a SPELLING are written, by their annotations."""


# ---------------------------------------------------------------- statements


def _added(stmt: ir.Store) -> Expr | None:
    """What a store adds to the element that it writes, if that is what it does."""
    value = stmt.value
    if stmt.mask is not None or not isinstance(value, ir.Binary) or value.op != "add":
        return None
    return value.b if value.a == ir.Load(stmt.buffer, stmt.indices) else None


class _Printer:
    """Collects lines; one method per kind of statement."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def func(self, func: Func) -> None:
        dims = ", ".join(self._dim(item) for item in func.dims)
        inputs = [declaration(item) for item in func.inputs]
        outputs = [declaration(item) for item in func.results]
        head = f"func {quote(func.name)}" + (f"[{dims}]" if dims else "")
        tail = _notes(func.attrs)
        whole = f"{head}({', '.join(inputs)}) -> ({', '.join(outputs)}){tail}"
        if len(whole) <= WIDTH:
            self.line(0, whole)
        else:
            self.line(0, f"{head}(")
            self.items(2, inputs)
            self.line(0, ") -> (")
            self.items(2, outputs)
            self.line(0, f"){tail}")
        for item in func.allocs:
            self.line(1, f"local {declaration(item)}")
        self.suite(func.body, 1)

    @staticmethod
    def _dim(item: ir.Dim) -> str:
        divisor = f" by {item.divisor}" if item.divisor != 1 else ""
        return f"{_typed(item.var)} in {item.minimum}..{item.maximum}{divisor}"

    def items(self, depth: int, texts: list[str]) -> None:
        for number, text in enumerate(texts):
            self.line(depth, text + ("," if number + 1 < len(texts) else ""))

    def suite(self, stmt: Stmt, depth: int) -> None:
        """A statement as a list of lines; bindings in tail position reach to the end, without nesting."""
        current: Stmt | None = stmt
        while current is not None:
            if isinstance(current, ir.Seq) and len(current.stmts) > 1:
                for item in current.stmts[:-1]:
                    self.stmt(item, depth)
                current = current.stmts[-1]
                if isinstance(current, ir.Seq):
                    self.stmt(current, depth)
                    return
            if not isinstance(current, ir.Let | ir.Alloc):
                self.stmt(current, depth)
                return
            self.line(depth, self.binding(current))
            current = current.body

    @staticmethod
    def binding(stmt: ir.Let | ir.Alloc) -> str:
        if isinstance(stmt, ir.Alloc):
            return f"alloc {declaration(stmt.buffer)}"
        return f"let {quote(stmt.var.name)}: {stmt.var.type} = {_expr(stmt.value)[0]}"

    def stmt(self, stmt: Stmt, depth: int) -> None:
        _STMTS.get(type(stmt), _Printer.spelled)(self, stmt, depth)

    def spelled(self, stmt: Stmt, depth: int) -> None:
        self.line(depth, _spelled(stmt))
        named = len(stmt.BODY_FIELDS) > 1
        for name in stmt.BODY_FIELDS:
            if named:
                self.line(depth + 1, name)
            self.suite(getattr(stmt, name), depth + 1 + named)

    def seq(self, stmt: ir.Seq, depth: int) -> None:
        if not stmt.stmts:
            self.line(depth, "pass")
            return
        self.line(depth, "seq")
        if len(stmt.stmts) > 1:
            self.suite(stmt, depth + 1)
        elif isinstance(stmt.stmts[0], ir.Seq):
            self.stmt(stmt.stmts[0], depth + 1)
        else:
            self.suite(stmt.stmts[0], depth + 1)

    def bind(self, stmt: ir.Let | ir.Alloc, depth: int) -> None:
        self.line(depth, f"{self.binding(stmt)} in")
        self.suite(stmt.body, depth + 1)

    def loop(self, stmt: ir.For, depth: int) -> None:
        head = f"for {_typed(stmt.var)} in 0..{_expr(stmt.extent)[0]}"
        self.line(depth, f"{head}{_kind(stmt)}{_notes(stmt.annotations)}")
        self.suite(stmt.body, depth + 1)

    def block(self, stmt: ir.Block, depth: int) -> None:
        iters = [_iter(item) for item in stmt.iters]
        tail = "" if stmt.predicate is None else f" where {_expr(stmt.predicate)[0]}"
        tail += _notes(stmt.annotations)
        head = f"block {quote(stmt.name)}("
        if 2 * depth + len(head) + sum(map(len, iters)) + 2 * len(iters) + len(tail) <= WIDTH:
            self.line(depth, f"{head}{', '.join(iters)}){tail}")
        else:
            self.line(depth, head)
            self.items(depth + 2, iters)
            self.line(depth, f"){tail}")
        for word, regions in (("reads", stmt.reads), ("writes", stmt.writes)):
            if regions:
                self.line(depth + 1, f"{word} {', '.join(_region_text(item) for item in regions)}")
        if stmt.init is not None:
            self.line(depth + 1, "init")
            self.suite(stmt.init, depth + 2)
        self.suite(stmt.body, depth + 1)

    def store(self, stmt: ir.Store, depth: int) -> None:
        target = _access(stmt.buffer, stmt.indices, stmt.mask, None)
        added = _added(stmt)
        sign, value = ("=", stmt.value) if added is None else ("+=", added)
        self.line(depth, f"{target} {sign} {_expr(value)[0]}")

    def atomic(self, stmt: ir.AtomicUpdate, depth: int) -> None:
        target = _access(stmt.buffer, stmt.indices, None, None)
        self.line(depth, f"atomic {quote(stmt.op)} {target}, {_expr(stmt.value)[0]}")

    def last_block(self, stmt: ir.LastBlock, depth: int) -> None:
        counter = _access(stmt.buffer, stmt.indices, None, None)
        self.line(depth, f"last_block {counter} of {stmt.count}")
        self.suite(stmt.body, depth + 1)

    def branch(self, stmt: ir.If, depth: int) -> None:
        word, current = "if", stmt
        while True:
            self.line(depth, f"{word} {_expr(current.cond)[0]}")
            self.suite(current.then, depth + 1)
            if not isinstance(current.orelse, ir.If):
                break
            word, current = "elif", current.orelse
        if current.orelse is not None:
            self.line(depth, "else")
            self.suite(current.orelse, depth + 1)

    def evaluate(self, stmt: ir.Evaluate, depth: int) -> None:
        word = "" if isinstance(stmt.value, ir.Call) else "eval "
        self.line(depth, f"{word}{_expr(stmt.value)[0]}")


_STMTS: dict[type, Callable[[_Printer, Any, int], None]] = {
    ir.Seq: _Printer.seq,
    ir.Let: _Printer.bind,
    ir.Alloc: _Printer.bind,
    ir.For: _Printer.loop,
    ir.Block: _Printer.block,
    ir.Store: _Printer.store,
    ir.AtomicUpdate: _Printer.atomic,
    ir.LastBlock: _Printer.last_block,
    ir.If: _Printer.branch,
    ir.Evaluate: _Printer.evaluate,
}
