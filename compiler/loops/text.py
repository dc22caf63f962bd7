"""The text form of the loop IR: what `--dump` shows, what `--from` reads, what tests are written in.

`parse_func(print_func(f)) == f` for every Func, and printing what was parsed gives canonical text back. One
statement is one line, nesting is indentation by two spaces, `#` starts a comment. Inside brackets a line
may be broken anywhere.

Grammar (`[ ]` optional, `{ }` repeated, quoted words literal)::

    file      = func { func }
    func      = "func" NAME [ "[" dim { "," dim } "]" ] "(" [ buffer { "," buffer } ] ")"
                "->" "(" [ buffer { "," buffer } ] ")" [ notes ] suite       # inputs -> outputs
    dim       = NAME [ ":" DTYPE ] "in" INT ".." INT [ "by" INT ]            # range (inclusive), divisor
    buffer    = NAME ":" DTYPE "[" [ expr { "," expr } ] "]" [ "@" SCOPE ]
                [ "strides" "[" exprs "]" ] [ "offset" expr ] [ "alias_of" NAME ]
                [ "align" INT ] [ "lane_map" NAME ]                          # align defaults to 64
    notes     = "{" KEY "=" value { "," KEY "=" value } "}"                  # annotations, attributes
    value     = INT | FLOAT | STRING | DTYPE | "true" | "false" | "none" | "(" { value "," } ")"

    suite     = an indented block of statements; the suite of a func starts with its `local` lines:
                "local" buffer                                               # Func.allocs
    statement = "for" NAME [ ":" DTYPE ] "in" "0" ".." expr [ kind ] [ notes ] suite
              | "block" NAME "(" [ iter { "," iter } ] ")" [ "where" expr ] [ notes ] block-suite
              | "if" expr suite { "elif" expr suite } [ "else" suite ]
              | "let" NAME ":" DTYPE "=" expr [ "in" suite ]           # no "in": to the end of the suite
              | "alloc" buffer [ "in" suite ]                                # likewise
              | access "=" expr | access "+=" expr                           # store
              | "atomic" NAME access "," expr                                # NAME: add, max, ...
              | "last_block" access "of" INT suite                           # a counter of so many blocks
              | call | "eval" expr                                           # for its effect
              | "scoped" NEWLINE indented: "setup" suite "body" suite "teardown" suite
              | "barrier" SCOPE
              | "async_copy" region "<-" region [ "group" INT ]
              | "async_commit" [ "group" INT ]
              | "async_wait" "pending" INT [ "group" INT ]
              | "seq" suite                                                  # a sequence inside a sequence
              | "pass"                                                       # the empty sequence
    kind      = "parallel" | "vectorized" | "unrolled" | "bound" "(" TAG ")" | "tag" "(" TAG ")"
    iter      = NAME ":" [ DTYPE ] ( "spatial" | "reduce" ) expr "=" expr    # extent = binding
    block-suite = indented: [ "reads" region { "," region } ] [ "writes" region { "," region } ]
                  [ "init" suite ] statements
    region    = NAME "[" [ span { "," span } ] "]"
    span      = expr [ "+:" expr ]                                         # begin +: extent, default 1
    access    = NAME "[" [ exprs ] [ "where" expr ] [ "else" expr ] "]"      # mask, value of masked-off lanes

    expr      = by precedence, loosest first: or; and; not; < <= > >= == !=; |; ^; &; << >>; + -; * / // %;
                unary - ~; ** ; primary        (/ div, // floordiv, % floormod, ** pow)
    primary   = literal | NAME | access | "&" access | "(" expr ")" | call
              | DTYPE "(" expr ")"                                           # cast
              | ( "min" | "max" | "truncdiv" | "truncmod" ) "(" expr "," expr ")"
              | "select" "(" expr "," expr "," expr ")"                      # condition, then, else
              | "ramp" "(" expr "," expr "," INT ")"                         # base, stride, lanes
              | "broadcast" "(" expr "," INT ")"
              | "shuffle" "(" "[" exprs "]" "," "[" INT { "," INT } "]" ")"
              | "reduce" "(" NAME "," expr ")"                               # all lanes to one
    call      = NAME [ ":" DTYPE ] "(" [ exprs ] ")"             # type defaults to the first argument's
    literal   = INT [ ":" DTYPE ] | FLOAT [ ":" DTYPE ] | ( "inf" | "nan" ) [ ":" DTYPE ] | "true" | "false"

An integer literal is i64 and a float literal f32 unless a type follows (`5:i32`, `0.5:f64`, `-inf:f16`). A
NAME is letters, digits, `_` and inner dots (`amx.tile`), or anything between backticks where it would be a
keyword otherwise. A `-` before a literal belongs to the literal; `-(1)` is the negation of 1.

Reserved for later, refused today: the statements `mbarrier init|expect|arrive|wait` (transaction barriers
with phase tokens) and `role producer|consumer` (specialised warps).
"""

from __future__ import annotations

from compiler.loops.parser import parse_expr, parse_func, parse_funcs
from compiler.loops.printer import print_expr, print_func, print_funcs, print_stmt

__all__ = [
    "parse_expr",
    "parse_func",
    "parse_funcs",
    "print_expr",
    "print_func",
    "print_funcs",
    "print_stmt",
]
