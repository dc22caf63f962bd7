"""Tokens of the text form, with the place of each for error messages."""

from __future__ import annotations

import re
from dataclasses import dataclass

from compiler.core.diagnostics import BadInputError

END, LINE, NAME, QUOTED, NUMBER, STRING, OP = "end", "line", "name", "quoted", "number", "string", "op"

Token = tuple[str, str, int]
"""(kind, text, offset). A LINE token stands before each logical line; its text is the indentation."""

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
_OPEN, _CLOSE = frozenset("([{"), frozenset(")]}")


@dataclass(frozen=True, slots=True)
class Source:
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


def tokenize(source: Source) -> list[Token]:
    """Split the text; spaces, comments, and line ends inside brackets are dropped."""
    text = source.text.replace("\t", " ") if "\t" in source.text else source.text
    tokens: list[Token] = [(LINE, "", 0)]
    depth, at, size = 0, 0, len(text)
    match = _TOKEN.match
    while at < size:
        found = match(text, at)
        if found is None:
            raise source.error(f"unexpected character {text[at]!r}", at)
        kind, end = found.lastgroup, found.end()
        piece = found.group()
        if kind == NAME or kind == NUMBER:
            tokens.append((kind, piece, at))
        elif kind == OP:
            depth += (piece in _OPEN) - (piece in _CLOSE)
            tokens.append((OP, piece, at))
        elif kind == LINE:
            if depth <= 0:
                _start_line(tokens, piece, end)
        elif kind == QUOTED:
            tokens.append((QUOTED, piece[1:-1], at))
        elif kind == STRING:
            tokens.append((STRING, piece, at))
        elif kind == "space" and at == 0:
            tokens[0] = (LINE, piece, 0)
        at = end
    if tokens[-1][0] == LINE:
        tokens.pop()
    tokens.append((END, "", size))
    return tokens


def _start_line(tokens: list[Token], piece: str, end: int) -> None:
    indent = piece[piece.rfind("\n") + 1 :]
    token = (LINE, indent, end - len(indent))
    if tokens[-1][0] == LINE:
        tokens[-1] = token
    else:
        tokens.append(token)


def describe(token: Token) -> str:
    """A token in words."""
    kind, text, _ = token
    if kind == END:
        return "the end of the text"
    if kind == LINE:
        return "the end of the line"
    return f"`{text}`"
