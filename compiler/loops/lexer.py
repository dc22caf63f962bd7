"""Tokens of the text form, with the place of each for error messages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from compiler.core.diagnostics import BadInputError

END, LINE, NAME, QUOTED, NUMBER, STRING, OP = "end", "line", "name", "quoted", "number", "string", "op"

Token = tuple[str, str, int]
"""(kind, text, offset). A LINE token stands between logical lines: its text is the indentation of the next
one, its offset the end of the one before."""

_TOKEN = re.compile(
    r"""(?P<space>[ ]+)
      | (?P<name>[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z0-9_]+)*)
      | (?P<number>0x[0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)
      | (?P<op><<|>>|<-|->|<=|>=|==|!=|\+=|\+:|\*\*|//|\.\.|[-+*/%<>=&|^~()\[\]{},:@])
      | (?P<line>(?:[ ]*(?:\#[^\n]*)?\n)+[ ]*)
      | (?P<comment>\#[^\n]*)
      | (?P<quoted>`[^`\n]*`)
      | (?P<string>"(?:[^"\\\n]|\\.)*")""",
    re.VERBOSE | re.ASCII,
)
_KEPT = frozenset({NAME, NUMBER, STRING})
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True, slots=True)
class SourceText:
    """A text and what to call it in messages."""

    text: str
    name: str

    def error(self, what: str, offset: int) -> BadInputError:
        """An error at a place in the text."""
        line = self.text.count("\n", 0, offset) + 1
        start = self.text.rfind("\n", 0, offset) + 1
        shown = self.text[start:].split("\n", 1)[0].strip()[:160]
        return BadInputError(
            what,
            where=f"{self.name}, line {line}, column {offset - start + 1}",
            why=f"the line reads: {shown}" if shown else "",
            hint="the grammar of the text form is in compiler/loops/text.py",
        )


def tokenize(source: SourceText) -> list[Token]:
    """Split the text; spaces, comments, and line ends inside brackets are dropped."""
    text = source.text
    tokens: list[Token] = [(LINE, "", 0)]
    depth, at = 0, 0
    for found in _TOKEN.finditer(text):
        start, end = found.span()
        if start != at:
            break
        at = end
        kind = found.lastgroup
        if kind in _KEPT:
            tokens.append((kind, found.group(), start))
        elif kind == OP:
            piece = found.group()
            depth += (piece in _OPEN) - (piece in _CLOSE)
            tokens.append((OP, piece, start))
        elif kind == QUOTED:
            tokens.append((QUOTED, found.group()[1:-1], start))
        elif kind == LINE and depth <= 0:
            _start_line(tokens, found.group(), start)
        elif kind == "space" and start == 0:
            tokens[0] = (LINE, found.group(), 0)
    if at != len(text):
        raise source.error(f"unexpected character {text[at]!r}", at)
    if tokens[-1][0] == LINE:
        tokens.pop()
    tokens.append((END, "", len(text.rstrip())))
    return tokens


def _start_line(tokens: list[Token], piece: str, start: int) -> None:
    indent = piece[piece.rfind("\n") + 1 :]
    if tokens[-1][0] == LINE:
        tokens[-1] = (LINE, indent, tokens[-1][2])
    else:
        tokens.append((LINE, indent, start))


def token_text(token: Token) -> str:
    """A token in words."""
    kind, text, _ = token
    if kind == END:
        return "the end of the text"
    if kind == LINE:
        return "the end of the line"
    return f"`{text}`"
