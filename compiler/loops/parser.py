"""Text to loop IR; the grammar is in `loops/text.py`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from compiler.core.diagnostics import BadInputError
from compiler.core.node import SPELLED, IRNode
from compiler.core.types import INDEX
from compiler.loops import ir, syntax
from compiler.loops.ir import Buffer, Expr, For, ForKind, Func, Region, Seq, Stmt, Var
from compiler.loops.lexer import (
    END,
    LINE,
    NAME,
    NUMBER,
    OP,
    QUOTED,
    STRING,
    SourceText,
    tokenize,
)
from compiler.loops.parser_exprs import CALLS, ExprParser, dtype_of


def parse_func(text: str, name: str = "the text") -> Func:
    """Read exactly one function; `name` is what messages call the text. BadInputError when it is wrong."""
    funcs = parse_funcs(text, name)
    if len(funcs) != 1:
        raise BadInputError(f"expected one function, found {len(funcs)}", where=name)
    return funcs[0]


def parse_funcs(text: str, name: str = "the text") -> tuple[Func, ...]:
    """Read all functions of a text. BadInputError names line, column and what was expected."""
    source = SourceText(text, name)
    parser = _Parser(source, tokenize(source))
    funcs: list[Func] = []
    try:
        while parser.kind() != END:
            funcs.append(parser.func())
    except RecursionError:
        raise source.error("the text is nested too deeply", parser.tokens[parser.at][2]) from None
    return tuple(funcs)


def parse_expr(
    text: str, variables: Sequence[Var] = (), buffers: Sequence[Buffer] = (), name: str = "the text"
) -> Expr:
    """Read one expression over the given variables and buffers; BadInputError when it is wrong."""
    source = SourceText(text, name)
    parser = _Parser(source, tokenize(source))
    parser.variables = {item.name: item for item in variables}
    parser.buffers = {item.name: item for item in buffers}
    parser.take_kind(LINE, "an expression")
    result = parser.expr()
    if parser.kind() != END:
        raise parser.expected("the end of the expression")
    return result


_KINDS = {kind.value: kind for kind in ForKind}


class _Parser(ExprParser):
    """Recursive descent over declarations and statements."""

    # ------------------------------------------------------------ declarations

    def buffer(self) -> Buffer:
        name = self.name("the name of a buffer")
        self.take(":")
        kind = self.dtype()
        self.take("[")
        shape = tuple(self.commas(self.expr, "]"))
        fields: dict[str, Any] = {}
        if self.accept("@"):
            fields["scope"] = self.name("a scope such as shared")
        while self.kind() == NAME and self.tokens[self.at][1] in _BUFFER_FIELDS:
            name_of, read = _BUFFER_FIELDS[self.take_kind(NAME, "a property of the buffer")]
            fields[name_of] = read(self)
        made = self.buffers[name] = Buffer(name, kind, shape, **fields)
        return made

    def strides(self) -> tuple[Expr, ...]:
        self.take("[")
        return tuple(self.commas(self.expr, "]"))

    def notes(self) -> tuple[tuple[str, Any], ...]:
        if not self.accept("{"):
            return ()
        return tuple(self.commas(self.note, "}"))

    def note(self) -> tuple[str, Any]:
        key = self.name("the name of an annotation")
        self.take("=")
        return key, self.value()

    def value(self) -> Any:
        kind, text, _ = self.tokens[self.at]
        self.at += 1
        if kind == STRING:
            return self.string(text)
        if kind == OP and text == "(":
            return tuple(self.commas(self.value, ")", trailing=True))
        sign = "-" if kind == OP and text == "-" else ""
        if sign:
            kind, text, _ = self.tokens[self.at]
            self.at += 1
        if kind == NUMBER:
            return int(sign + text) if text.isdigit() else float(sign + text)
        if kind == NAME and text in ("inf", "nan"):
            return float(sign + text)
        if kind == NAME and not sign:
            if text in _WORD_VALUES:
                return _WORD_VALUES[text]
            found = dtype_of(text)
            if found is not None:
                return found
        self.at -= 1
        raise self.expected("a number, a string, true, false, none, a type or a tuple")

    def string(self, text: str) -> str:
        try:
            return str(json.loads(text))
        except ValueError:
            raise self.wrong("this string is not valid JSON") from None

    # ------------------------------------------------------------ statements

    def func(self) -> Func:
        self.variables, self.buffers = {}, {}
        indent = len(self.take_kind(LINE, "a function"))
        self.take_word("func")
        name = self.name("the name of the function")
        dims = self.commas(self.dim, "]") if self.accept("[") else []
        self.take("(")
        inputs = self.commas(self.buffer, ")")
        self.take("->")
        self.take("(")
        outputs = self.commas(self.buffer, ")")
        attrs = self.notes()
        allocs: list[Buffer] = []
        inner = self.indentation(indent)
        while self.accept_line(inner, "local"):
            allocs.append(self.buffer())
        if self.kind() != LINE:
            raise self.expected("the end of the line")
        body = _one(self.suite_at(indent, inner))
        if self.kind() == LINE and len(self.tokens[self.at][1]) > indent:
            raise self.misplaced()
        return Func(name, (*inputs, *outputs), body, tuple(allocs), len(outputs), tuple(dims), attrs)

    def misplaced(self) -> BadInputError:
        return self.source.error("this indentation matches no enclosing block", self.tokens[self.at + 1][2])

    def dim(self) -> ir.Dim:
        var = self.variable()
        self.take_word("in")
        low = self.integer("the least value")
        self.take("..")
        high = self.integer("the greatest value")
        divisor = self.integer("a divisor") if self.accept_word("by") else 1
        return ir.Dim(var, low, high, divisor)

    def variable(self) -> Var:
        name = self.name("the name of a variable")
        made = self.variables[name] = Var(name, self.dtype() if self.accept(":") else INDEX)
        return made

    def next_line_is(self, indent: int, word: str) -> bool:
        token, after = self.tokens[self.at], self.tokens[self.at + 1 : self.at + 2]
        return token[0] == LINE and len(token[1]) == indent and bool(after) and after[0][:2] == (NAME, word)

    def accept_line(self, indent: int, word: str) -> bool:
        found = self.next_line_is(indent, word)
        self.at += 2 * found
        return found

    def indentation(self, outer: int) -> int:
        """The indentation of the suite that starts here; it is deeper than `outer`."""
        token = self.tokens[self.at]
        if token[0] != LINE:
            raise self.expected("the end of the line" if token[0] != END else "an indented statement")
        if len(token[1]) <= outer:
            self.at += 1
            raise self.expected(f"a statement indented by more than {outer} spaces")
        return len(token[1])

    def suite(self, outer: int) -> Stmt:
        return _one(self.suite_at(outer, self.indentation(outer)))

    def suite_at(self, outer: int, indent: int) -> list[Stmt]:
        """The statements at one indentation; a binding without `in` takes all that follow it."""
        frames: list[tuple[list[Stmt], Callable[[Stmt], Stmt]]] = []
        current: list[Stmt] = []
        while True:
            token = self.tokens[self.at]
            if token[0] != LINE:
                if token[0] == END:
                    break
                raise self.expected("the end of the line")
            if len(token[1]) != indent:
                if outer < len(token[1]):
                    raise self.misplaced()
                break
            self.at += 1
            made = self.statement(indent)
            if isinstance(made, Stmt):
                current.append(made)
            else:
                frames.append((current, made))
                current = []
        if not current:
            raise self.expected("a statement" if not frames else "a statement that uses the binding above")
        while frames:
            body = _one(current)
            current, bind = frames.pop()
            current.append(bind(body))
        return current

    def statement(self, indent: int) -> Stmt | Callable[[Stmt], Stmt]:
        kind, text, _ = self.tokens[self.at]
        if kind not in (NAME, QUOTED):
            raise self.expected("a statement")
        after = self.tokens[self.at + 1]
        if after[0] == OP and after[1] == "[":
            return self.store()
        if kind == NAME:
            read = _STATEMENTS.get(text)
            if read is not None:
                self.at += 1
                return read(self, indent)
            made = SPELLED.get(text)
            if made is not None and issubclass(made, Stmt):
                return made(**self.spelled(made), **self.suites(made, indent))
            if text in ("mbarrier", "role"):
                raise self.source.error(
                    f"`{text}` is reserved and not supported yet", self.tokens[self.at][2]
                )
        if after[0] == OP and after[1] in ("(", ":") and (kind == QUOTED or text not in {*CALLS, *SPELLED}):
            value = self.expr()
            if isinstance(value, ir.Call):
                return ir.Evaluate(value)
            raise self.wrong("this value is not used; write `eval` before it if that is meant")
        raise self.expected("a statement")

    def store(self) -> Stmt:
        buffer, indices, mask, other = self.access()
        if other is not None:
            raise self.wrong("a store has no else value")
        if self.accept("+="):
            if mask is not None:
                raise self.wrong("`+=` takes no mask; write the sum out")
            return ir.Store(buffer, indices, ir.Binary("add", ir.Load(buffer, indices), self.expr()))
        if not self.accept("="):
            raise self.expected("`=` or `+=`")
        return ir.Store(buffer, indices, self.expr(), mask)

    def loop(self, indent: int) -> Stmt:
        var = self.variable()
        self.take_word("in")
        if self.tokens[self.at][:2] != (NUMBER, "0"):
            raise self.expected("`0..extent`; loops start at 0")
        self.at += 1
        self.take("..")
        extent = self.expr()
        kind, tag = ForKind.SERIAL, None
        if self.kind() == NAME and self.tokens[self.at][1] in _KINDS:
            kind = _KINDS[self.take_kind(NAME, "a kind of loop")]
        if kind is ForKind.BOUND or self.accept_word("tag"):
            self.take("(")
            if not self.accept(")"):
                tag = self.name("a tag such as threadIdx.x")
                self.take(")")
        notes = self.notes()
        return For(var, extent, self.suite(indent), kind, tag, notes)

    def block(self, indent: int) -> Stmt:
        name = self.name("the name of the block")
        self.take("(")
        iters = tuple(self.commas(self.iteration, ")"))
        predicate = self.expr() if self.accept_word("where") else None
        notes = self.notes()
        for item in iters:
            self.variables[item.var.name] = item.var
        inner = self.indentation(indent)
        reads = self.region_line(inner, "reads")
        writes = self.region_line(inner, "writes")
        init = None
        if self.next_line_is(inner, "init") and self.tokens[self.at + 2][0] == LINE:
            self.at += 2
            init = self.suite(inner)
        body = _one(self.suite_at(indent, inner))
        return ir.Block(name, iters, reads, writes, body, init, predicate, notes)

    def region_line(self, indent: int, word: str) -> tuple[Region, ...]:
        return tuple(self.some(self.region)) if self.accept_line(indent, word) else ()

    def iteration(self) -> ir.Iter:
        name = self.name("the name of an iteration variable")
        self.take(":")
        kind = dtype_of(self.tokens[self.at][1])
        if kind is not None:
            self.at += 1
        word = self.take_kind(NAME, "`spatial` or `reduce`")
        if word not in ("spatial", "reduce"):
            self.at -= 1
            raise self.expected("`spatial` or `reduce`")
        extent = self.expr()
        self.take("=")
        return ir.Iter(Var(name, kind or INDEX), extent, word, self.expr())

    def branch(self, indent: int) -> Stmt:
        arms = [(self.expr(), self.suite(indent))]
        while self.accept_line(indent, "elif"):
            arms.append((self.expr(), self.suite(indent)))
        result = self.suite(indent) if self.accept_line(indent, "else") else None
        for cond, then in reversed(arms):
            result = ir.If(cond, then, result)
        assert result is not None
        return result

    def let(self, indent: int) -> Stmt | Callable[[Stmt], Stmt]:
        name = self.name("the name of a variable")
        self.take(":")
        kind = self.dtype()
        self.take("=")
        value = self.expr()
        var = self.variables[name] = Var(name, kind)
        if self.accept_word("in"):
            return ir.Let(var, value, self.suite(indent))
        return lambda body: ir.Let(var, value, body)

    def alloc(self, indent: int) -> Stmt | Callable[[Stmt], Stmt]:
        made = self.buffer()
        if self.accept_word("in"):
            return ir.Alloc(made, self.suite(indent))
        return lambda body: ir.Alloc(made, body)

    def seq(self, indent: int) -> Stmt:
        return Seq(tuple(self.suite_at(indent, self.indentation(indent))))

    def evaluate(self, _indent: int) -> Stmt:
        return ir.Evaluate(self.expr())

    def atomic(self, _indent: int) -> Stmt:
        kind, op, _ = self.tokens[self.at]
        if kind == NAME and op in syntax.INFIX:
            self.at += 1
        else:
            op = self.name("an operation such as add")
        buffer, indices, mask, other = self.access()
        if mask is not None or other is not None:
            raise self.wrong("an atomic update has no mask")
        self.take(",")
        return ir.AtomicUpdate(op, buffer, indices, self.expr())

    def last_block(self, indent: int) -> Stmt:
        buffer, indices, mask, other = self.access()
        if mask is not None or other is not None:
            raise self.wrong("a counter of blocks has no mask")
        self.take_word("of")
        count = self.integer("the number of blocks")
        return ir.LastBlock(buffer, indices, count, self.suite(indent))

    def suites(self, kind: type[IRNode], indent: int) -> dict[str, Stmt]:
        """The statements inside a node with a SPELLING, by the names of its fields."""
        names = kind.BODY_FIELDS
        if len(names) < 2:
            return {name: self.suite(indent) for name in names}
        inner, found = self.indentation(indent), {}
        for name in names:
            if not self.accept_line(inner, name):
                self.at += self.kind() == LINE
                holds = f"{kind.SPELLING.split()[0]} holds {', '.join(names[:-1])} and {names[-1]}"
                raise self.expected(f"`{name}` ({holds})")
            found[name] = self.suite(inner)
        return found


def _one(stmts: list[Stmt]) -> Stmt:
    return stmts[0] if len(stmts) == 1 else Seq(tuple(stmts))


_WORD_VALUES: dict[str, Any] = {"true": True, "false": False, "none": None}

_BUFFER_FIELDS: dict[str, tuple[str, Callable[[_Parser], Any]]] = {
    "strides": ("strides", _Parser.strides),
    "offset": ("offset", _Parser.expr),
    "alias_of": ("alias_of", lambda p: p.name("the name of a buffer")),
    "align": ("alignment", lambda p: p.integer("an alignment in bytes")),
    "lane_map": ("lane_map", lambda p: p.name("the name of a lane map")),
}

_STATEMENTS: dict[str, Callable[[_Parser, int], Stmt | Callable[[Stmt], Stmt]]] = {
    "for": _Parser.loop,
    "block": _Parser.block,
    "if": _Parser.branch,
    "atomic": _Parser.atomic,
    "last_block": _Parser.last_block,
    "let": _Parser.let,
    "alloc": _Parser.alloc,
    "eval": _Parser.evaluate,
    "seq": _Parser.seq,
    "pass": lambda _p, _indent: Seq(()),
}
