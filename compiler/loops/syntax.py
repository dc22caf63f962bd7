"""Words and precedences that the printer and the parser of the text form share (grammar: `loops/text.py`)."""

from __future__ import annotations

import re

KEYWORDS = frozenset({
    "func", "for", "in", "if", "elif", "else", "let", "alloc", "local", "block", "reads", "writes", "init",
    "where", "seq", "pass", "eval", "and", "or", "not", "true", "false", "inf", "nan", "none",
})  # fmt: skip
"""Words that stand between backticks when they are used as a name."""

FUNCTIONS = frozenset({
    "min", "max", "truncdiv", "truncmod", "select", "atomic", "last_block", "mbarrier", "role",
})  # fmt: skip
"""Words that stand between backticks when they are used as the name of a call, beside those of SPELLED."""

INFIX: dict[str, tuple[str, int]] = {
    "or": ("or", 1), "and": ("and", 2),
    "lt": ("<", 4), "le": ("<=", 4), "gt": (">", 4), "ge": (">=", 4), "eq": ("==", 4), "ne": ("!=", 4),
    "bitor": ("|", 5), "bitxor": ("^", 6), "bitand": ("&", 7), "shl": ("<<", 8), "shr": (">>", 8),
    "add": ("+", 9), "sub": ("-", 9),
    "mul": ("*", 10), "div": ("/", 10), "floordiv": ("//", 10), "floormod": ("%", 10),
}  # fmt: skip
"""Binary operation -> (symbol, precedence); all associate to the left, comparisons not at all."""

NOT, COMPARE, UNARY, POW, PRIMARY = 3, 4, 11, 12, 13
"""Precedences that are not in INFIX."""

PREFIX: dict[str, tuple[str, int]] = {"neg": ("-", UNARY), "bitnot": ("~", UNARY), "not": ("not ", NOT)}
"""Unary operation -> (symbol, precedence)."""

CALLED_BINARY = ("min", "max", "truncdiv", "truncmod")
"""Binary operations written as calls."""

NAME = re.compile(r"[A-Za-z_]\w*(?:\.\w+)*", re.ASCII)
DTYPE = re.compile(
    r"(?:bool|bf16|tf32|f8e[45]m[23](?:fnuz)?|f8e8m0|f4e2m1|f16|f32|f64|[iu](?:2|4|8|16|32|64))(?:x[1-9]\d*)?"
)
