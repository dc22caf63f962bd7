"""Expressions of the text form; the grammar is in `loops/text.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, cast

from compiler.core.diagnostics import BadInputError, did_you_mean
from compiler.core.node import SPELLED, IRNode
from compiler.core.types import BOOL, F32, INDEX, DType, parse_dtype
from compiler.loops import ir, syntax
from compiler.loops.ir import Buffer, Const, Expr, Region, Var
from compiler.loops.lexer import NAME, NUMBER, OP, QUOTED, SourceText, Token, token_text
from compiler.loops.spelling import spelling_of

_INFIX: dict[str, tuple[str, int]] = {symbol: (op, level) for op, (symbol, level) in syntax.INFIX.items()}


@lru_cache(maxsize=1 << 12)
def dtype_of(text: str) -> DType | None:
    """The element type that a word names, or None."""
    return parse_dtype(text) if syntax.DTYPE.fullmatch(text) else None


class ExprParser:
    """Recursive descent over the token list; `at` is the next token."""

    def __init__(self, source: SourceText, tokens: list[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.at = 0
        self.variables: dict[str, Var] = {}
        self.buffers: dict[str, Buffer] = {}
        self.literals: dict[str, Const] = {}

    # ------------------------------------------------------------ tokens

    def kind(self) -> str:
        return self.tokens[self.at][0]

    def expected(self, what: str) -> BadInputError:
        token = self.tokens[self.at]
        return self.source.error(f"expected {what}, found {token_text(token)}", token[2])

    def wrong(self, what: str) -> BadInputError:
        return self.source.error(what, self.tokens[self.at - 1][2])

    def take_kind(self, kind: str, what: str) -> str:
        token = self.tokens[self.at]
        if token[0] != kind:
            raise self.expected(what)
        self.at += 1
        return token[1]

    def accept(self, op: str, kind: str = OP) -> bool:
        token = self.tokens[self.at]
        if token[1] == op and token[0] == kind:
            self.at += 1
            return True
        return False

    def take(self, op: str, kind: str = OP) -> None:
        if not self.accept(op, kind):
            raise self.expected(f"`{op}`")

    def accept_word(self, word: str) -> bool:
        return self.accept(word, NAME)

    def take_word(self, word: str) -> None:
        self.take(word, NAME)

    def name(self, what: str) -> str:
        kind, text, _ = self.tokens[self.at]
        if kind == QUOTED or (kind == NAME and text not in syntax.KEYWORDS):
            self.at += 1
            return text
        raise self.expected(what)

    def integer(self, what: str) -> int:
        sign = -1 if self.accept("-") else 1
        kind, text, _ = self.tokens[self.at]
        if kind != NUMBER or not text.isdigit():
            raise self.expected(what)
        self.at += 1
        return sign * int(text)

    def dtype(self) -> DType:
        kind, text, _ = self.tokens[self.at]
        found = dtype_of(text) if kind == NAME else None
        if found is None:
            raise self.expected("an element type such as f32 or f32x16")
        self.at += 1
        return found

    def commas(self, item: Callable[[], Any], close: str, *, trailing: bool = False) -> list[Any]:
        """Items between commas, or with one behind the last, up to the closing bracket, which is taken."""
        items: list[Any] = []
        if self.accept(close):
            return items
        while True:
            items.append(item())
            if self.accept(close):
                return items
            if not self.accept(","):
                raise self.expected(f"`,` or `{close}`")
            if trailing and self.accept(close):
                return items

    # ------------------------------------------------------------ expressions

    def expr(self) -> Expr:
        return self.infix(1)

    def infix(self, least: int) -> Expr:
        if least <= syntax.NOT and self.accept_word("not"):
            left: Expr = ir.Unary("not", self.infix(syntax.NOT))
        else:
            left = self.unary()
        while True:
            found = _INFIX.get(self.tokens[self.at][1])
            if found is None or found[1] < least or self.tokens[self.at][0] not in (OP, NAME):
                return left
            op, level = found
            self.at += 1
            left = ir.Binary(op, left, self.infix(level + 1))
            if level == syntax.COMPARE:
                following = _INFIX.get(self.tokens[self.at][1])
                if following is not None and following[1] == level:
                    raise self.source.error(
                        "comparisons do not chain; write `a < b and b < c`", self.tokens[self.at][2]
                    )

    def unary(self) -> Expr:
        kind, text, _ = self.tokens[self.at]
        if kind == OP:
            if text == "-":
                self.at += 1
                after = self.tokens[self.at]
                if after[0] == NUMBER or (after[0] == NAME and after[1] in ("inf", "nan")):
                    return self.literal("-")
                return ir.Unary("neg", self.unary())
            if text == "~":
                self.at += 1
                return ir.Unary("bitnot", self.unary())
        base = self.primary()
        if self.accept("**"):
            return ir.Binary("pow", base, self.power())
        return base

    def power(self) -> Expr:
        base = self.primary()
        return ir.Binary("pow", base, self.power()) if self.accept("**") else base

    def primary(self) -> Expr:
        kind, text, _ = self.tokens[self.at]
        if kind == NUMBER:
            return self.literal("")
        if kind in (NAME, QUOTED):
            return self.named(kind, text)
        if kind == OP and text == "(":
            self.at += 1
            inner = self.expr()
            self.take(")")
            return inner
        if kind == OP and text == "&":
            self.at += 1
            buffer, indices, mask, other = self.access()
            if mask is not None or other is not None:
                raise self.wrong("an address has no mask")
            return ir.AddressOf(buffer, indices)
        raise self.expected("an expression")

    def named(self, kind: str, text: str) -> Expr:
        after = self.tokens[self.at + 1]
        if after[0] == OP:
            if after[1] == "[":
                return ir.Load(*self.access())
            if after[1] == "(" and kind == NAME:
                special, made = CALLS.get(text), SPELLED.get(text)
                if special is not None:
                    self.at += 2
                    return special(self)
                if made is not None and issubclass(made, Expr):
                    return made(**self.spelled(made))
                target = dtype_of(text)
                if target is not None:
                    self.at += 2
                    value = self.expr()
                    self.take(")")
                    return ir.Cast(target, value)
            if after[1] == "(" or (after[1] == ":" and self.is_typed_call()):
                return self.call()
        if kind == NAME and text in ("true", "false", "inf", "nan"):
            return self.literal("")
        found = self.variables.get(text)
        if found is None or (kind == NAME and text in syntax.KEYWORDS):
            raise self.unknown("variable", text, self.variables)
        self.at += 1
        return found

    def is_typed_call(self) -> bool:
        two, three = (
            self.tokens[self.at + 2 : self.at + 4] if self.at + 4 <= len(self.tokens) else (None, None)
        )
        return bool(two and three and two[0] == NAME and three[1] == "(" and dtype_of(two[1]) is not None)

    def unknown(self, what: str, text: str, known: Mapping[str, object]) -> BadInputError:
        if text in syntax.KEYWORDS or self.tokens[self.at][0] not in (NAME, QUOTED):
            return self.expected(f"a {what}" if what == "buffer" else "an expression")
        suggestion = did_you_mean(text, known)
        tail = f"; {suggestion}" if suggestion else ""
        return self.source.error(f"unknown {what} `{text}`{tail}", self.tokens[self.at][2])

    def literal(self, sign: str) -> Const:
        text = self.tokens[self.at][1]
        self.at += 1
        kind: DType | None = None
        after = self.tokens[self.at]
        if after[1] == ":" and after[0] == OP:
            self.at += 1
            kind = self.dtype()
        key = f"{sign}{text}:{kind}"
        known = self.literals.get(key)
        if known is None:
            known = self.literals[key] = self.make_literal(sign, text, kind)
        return known

    def make_literal(self, sign: str, text: str, kind: DType | None) -> Const:
        if text in ("true", "false"):
            if kind is not None:
                raise self.wrong("true and false are of type bool already")
            return Const(text == "true", BOOL)
        if text.isdigit() or text.startswith("0x"):
            whole = int(sign + text, 0 if text.startswith("0x") else 10)
            target = kind or INDEX
            if target.is_bool:
                raise self.wrong("a bool is written true or false")
            return Const(float(whole) if target.is_float else whole, target)
        target = kind or F32
        if not target.is_float:
            raise self.wrong(f"{text} is no {target}")
        return Const(float(sign + text), target)

    def call(self) -> Expr:
        name = self.tokens[self.at][1]
        if self.tokens[self.at][0] == NAME and name in syntax.KEYWORDS:
            raise self.expected("an expression")
        self.at += 1
        kind = self.dtype() if self.accept(":") else None
        self.take("(")
        args = self.commas(self.expr, ")")
        if kind is None:
            if not args:
                raise self.wrong(f"a call without arguments names its type: {name}:f32()")
            kind = args[0].dtype
        return ir.Call(name, tuple(args), kind)

    def two(self, op: str) -> Expr:
        a = self.expr()
        self.take(",")
        b = self.expr()
        self.take(")")
        return ir.Binary(op, a, b)

    def select(self) -> Expr:
        args = self.commas(self.expr, ")")
        if len(args) != 3:
            raise self.wrong(f"select takes condition, then, else; found {len(args)} values")
        return ir.Select(*args)

    def spelled(self, kind: type[IRNode]) -> dict[str, Any]:
        """The fields of a node by its SPELLING; statements inside are left."""
        found: dict[str, Any] = {}
        for piece in spelling_of(cast(Any, kind)):
            for word in piece.words:
                self.take(word, OP if not word.isidentifier() else NAME)
            if piece.field and (not piece.optional or self.accept_word(piece.field)):
                found[piece.field] = self.field(piece.kind, piece.what)
        return found

    def field(self, kind: str, what: str) -> Any:
        """The value of a field, by its annotation."""
        if kind.startswith("tuple"):
            return tuple(self.some(lambda: self.field(kind[6:-6], what)))
        if kind in ("int", "str"):
            return self.integer(what) if kind == "int" else self.name(what)
        return self.region() if kind == "Region" else self.expr()

    def some(self, item: Callable[[], Any]) -> list[Any]:
        """One item, or more between commas."""
        items = [item()]
        while self.accept(","):
            items.append(item())
        return items

    def region(self) -> Region:
        buffer = self.buffer_use()
        spans = self.commas(self.span, "]")
        return Region(buffer, tuple(begin for begin, _ in spans), tuple(extent for _, extent in spans))

    def span(self) -> tuple[Expr, Expr]:
        begin = self.expr()
        return begin, self.expr() if self.accept("+:") else ir.const(1)

    def access(self) -> tuple[Buffer, tuple[Expr, ...], Expr | None, Expr | None]:
        buffer = self.buffer_use()
        indices: list[Expr] = []
        mask = other = None
        while not self.accept("]"):
            if self.accept_word("where"):
                mask = self.expr()
            if self.accept_word("else"):
                other = self.expr()
            if mask is not None or other is not None:
                self.take("]")
                break
            indices.append(self.expr())
            if not (self.accept(",") or self.tokens[self.at][1] in ("]", "where", "else")):
                raise self.expected("`,` or `]`")
        return buffer, tuple(indices), mask, other

    def buffer_use(self) -> Buffer:
        kind, text, _ = self.tokens[self.at]
        found = self.buffers.get(text)
        if found is None or kind not in (NAME, QUOTED):
            raise self.unknown("buffer", text, self.buffers)
        self.at += 1
        self.take("[")
        return found


CALLS: dict[str, Callable[[ExprParser], Expr]] = {
    "min": lambda p: p.two("min"),
    "max": lambda p: p.two("max"),
    "truncdiv": lambda p: p.two("truncdiv"),
    "truncmod": lambda p: p.two("truncmod"),
    "select": ExprParser.select,
}
