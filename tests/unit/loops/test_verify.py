"""The verifier: each problem in a sentence, all of them at once, nothing said about right programs."""

from __future__ import annotations

import time

import pytest

from compiler.core.diagnostics import BadInputError, InternalError
from compiler.core.passes import Pass, run_passes
from compiler.core.types import F32
from compiler.loops.build import Builder
from compiler.loops.ir import (
    Buffer,
    Const,
    Evaluate,
    Func,
    Select,
    Store,
    Var,
    all_of,
    const,
    maximum,
    minimum,
)
from compiler.loops.text import parse_func
from compiler.loops.verify import Stage, problems_of, verify_func, verifying

HEAD = "func f(x: f32[8, 8], n: i64[8], k: f32[8] @constant) -> (y: f32[8, 8])\n  local t: f32[8]\n"


def indented(lines: str) -> str:
    return "".join(f"  {line}\n" for line in lines.strip("\n").split("\n"))


def said(body: str, stage: Stage = "lowered") -> list[str]:
    return list(problems_of(parse_func(HEAD + indented(body)), stage))


RIGHT = """
for i in 0..8 parallel
  for j in 0..8
    y[i, j] = x[i, j] * 2.0
"""


def test_nothing_is_said_about_a_right_program() -> None:
    assert said(RIGHT) == []


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        ("y[0, 0] = x[0, 0] + 1.0:f64", "the operands of `x[0, 0] + 1.0:f64` are f32 and f64"),
        ("y[0, 0] = 1.0:f64", "a value of f64 is stored where f32 is needed"),
        ("y[0, ramp(0, 1, 4)] = 1.0", "a value of f32 is stored where f32x4 is needed"),
        ("y[0, 0] = select(1, 1.0, 2.0)", "the condition of `select(1, 1.0, 2.0)` is i64"),
        ("y[0, 0] = select(true, 1.0, 2)", "the sides of `select(true, 1.0, 2)` are f32 and i64"),
        ("y[0, 0] = f32(true and 1 < 2)\nif 1\n  y[0, 1] = 1.0", "the condition `1` is i64, not bool"),
        ("y[0, 0] = f32(1 and 2)", "`1 and 2` applies and to i64"),
        ("y[0, 0] = x[0, 0] << x[0, 0]", "applies shl to f32"),
        ("y[0, 0] = f32(not 1)", "`not` cannot be applied to i64"),
        ("y[0, 0] = f32(n[0] // 0)", "`n[0] // 0` divides by zero"),
        ("y[0, 0] = f32(broadcast(1, 4))", "changes the number of lanes of i64x4"),
        ("y[0, 0] = reduce(sub, broadcast(1.0, 4))", "`sub` cannot combine lanes"),
        ("y[0, 0] = shuffle([broadcast(1.0, 4)], [4])", "picks a lane that is not among 4"),
        ("y[0, 0] = x[0, ramp(0, 1, 1)]", "has fewer than two lanes"),
        ("y[0, 0] = x[0]", "`x` has 2 dimensions and 1 indices"),
        ("y[0, 0] = x[0, 1.0]", "an index into `x` is not an integer"),
        ("y[0, 0] = x[ramp(0, 1, 2), ramp(0, 1, 4)]", "have different numbers of lanes"),
        ("y[0, 0] = x[0, 0 else 1.0]", "has a value for masked-off lanes and no mask"),
        ("y[0, 0] = x[0, 0 where true else 1]", "the value for masked-off lanes of"),
        ("y[0, 0] = x[0, 0 where 1]", "the mask of an access to `x` is i64"),
        ("let a: f32 = 1\ny[0, 0] = a", "`a` is f32 and its value i64"),
        (
            "for i in 0..8\n  y[i, 0] = 1.0\nfor i in 0..8\n  y[i, 1] = 1.0",
            "the variable name `i` is used twice",
        ),
        (
            "seq\n  for i in 0..8\n    y[i, 0] = 1.0\ny[i, 1] = 1.0",
            "variable `i` is used where it is not defined",
        ),
        ("alloc a: f32[4] in\n  a[0] = 1.0\ny[0, 0] = a[0]", "buffer `a` is used where it does not exist"),
        ("alloc x: f32[4]\ny[0, 0] = 1.0", "the buffer name `x` is used twice"),
        (
            "for i in 0..9\n  y[i, 0] = 1.0",
            "index 0 of `y`, `i`, lies in 0..8, and that dimension has 8 elements",
        ),
        ("for i in 0..8\n  y[i, 0] = x[i - 1, 0]", "index 0 of `x`, `i - 1`, lies in -1..6"),
        ("for i in 0..2\n  y[0, ramp(i * 8, 1, 8)] = broadcast(0.0, 8)", "lies in 0..15"),
        ("for i in 0..8\n  if i < 4\n    y[i, 8] = 1.0\ny[0, 9] = 1.0", "index 1 of `y`, `9`, lies in 9"),
        ("for i in 0..8 bound()\n  y[i, 0] = 1.0", "a bound loop needs the tag"),
        ("for i in 0..-1\n  y[i, 0] = 1.0", "the extent `-1` is negative"),
        ("x[0, 0] = 1.0\ny[0, 0] = 1.0", "input `x` is written"),
        ("k[0] = 1.0\ny[0, 0] = 1.0", "constant `k` is written"),
        ("pass", "output `y` is never written"),
        ("y[0, 0] = t[0]", "`t` is read and never written"),
        (
            "for i in 0..8 parallel\n  y[0, 0] = x[i, 0]",
            "all iterations of the parallel loop `i` write the same place",
        ),
        (
            "for i in 0..8 bound(blockIdx.x)\n  for j in 0..8\n    y[j, 0] = 1.0",
            "of the blockIdx.x loop `i` write",
        ),
        (
            "for i in 0..8 bound(threadIdx.x)\n  if x[i, 0] > 0.0\n    barrier shared\n  y[i, 0] = 1.0",
            "the barrier is under a condition that differs between threads (by `i`)",
        ),
        (
            "for i in 0..8 bound(threadIdx.x)\n  for j in 0..i\n    barrier shared\n  y[i, 0] = 1.0",
            "(by `i`)",
        ),
        (
            (
                "for i in 0..8 bound(threadIdx.x)\n  alloc r: f32[1] @register\n  r[0] = x[i, 0]\n"
                "  if r[0] > 0.0\n    barrier shared\n  y[i, 0] = 1.0"
            ),
            "(by `i`)",
        ),
        (
            "alloc r: f32[1] @register\nfor i in 0..8 parallel\n  r[0] = x[i, 0]\n  y[i, 0] = r[0]",
            "`r` belongs to one thread and exists outside of the parallel loop `i` that writes it",
        ),
        ("barrier shared\ny[0, 0] = 1.0", "a barrier needs bound threads around it"),
        (
            "for i in 0..8 bound(threadIdx.x)\n  for j in 0..8 bound(threadIdx.x)\n    y[i, j] = 1.0",
            "is bound twice",
        ),
        (
            (
                "for b in 0..2 bound(blockIdx.x)\n  for i in 0..8 bound(threadIdx.x)\n    y[i, b] = 1.0\n"
                "  for j in 0..4 bound(threadIdx.x)\n    y[j, b] = 1.0"
            ),
            "loops bound to threadIdx.x have different extents",
        ),
        ("async_copy y[0, 0 +: 4] <- x[0, 0 +: 4]", "copies of group 0 are started and never committed"),
        (
            "async_copy y[0, 0 +: 4] <- x[0, 0 +: 4] group 2\nasync_commit group 2",
            "copies of group 2 are committed and never waited for",
        ),
        (
            "async_wait pending 0 group 1\ny[0, 0] = 1.0",
            "group 1 is waited for, and nothing was committed to it",
        ),
        (
            "async_copy y[0, 0] <- n[0]\nasync_commit\nasync_wait pending 0",
            "an asynchronous copy cannot change the type",
        ),
        ("atomic sqrt y[0, 0], 1.0", "`sqrt` is no atomic operation"),
        ("alloc a: f32[4] strides [4, 1]\na[0] = 1.0\ny[0, 0] = a[0]", "`a` has 1 dimensions and 2 strides"),
        (
            "alloc a: f32[4] align 24\na[0] = 1.0\ny[0, 0] = a[0]",
            "the alignment of `a`, 24, is no power of two",
        ),
        (
            "alloc a: f32[4] alias_of q\na[0] = 1.0\ny[0, 0] = a[0]",
            "`a` is an alias of `q`, which does not exist",
        ),
        ("block b(v: spatial 8 = 0)\n  y[v, 0] = 1.0", "block `b` is left after lowering"),
    ],
)
def test_problems(body: str, sentence: str) -> None:
    found = said(body)
    assert any(sentence in item for item in found), found


BLOCK = """
for i in 0..8
  for j in 0..8
    block b(vi: spatial 8 = i, vj: reduce 8 = j)
      reads x[vi, vj]
      writes y[vi, 0]
      init
        y[vi, 0] = 0.0
      y[vi, 0] += x[vi, vj]
"""


def test_a_right_block() -> None:
    assert said(BLOCK, "scheduled") == []


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("reads x[vi, vj]", "reads k[vi]", "block `b` reads `x` and does not declare it"),
        ("writes y[vi, 0]", "writes t[vi]", "block `b` writes `y` and does not declare it"),
        (
            "reads x[vi, vj]",
            "reads x[vi, vj + 1]",
            "block `b` reads `x` outside of the region that it declares",
        ),
        ("reads x[vi, vj]", "reads x[vi, 0 +: 7]", "block `b` reads `x` outside"),
        ("reads x[vi, vj]", "reads x[vi]", "the region of `x` has another rank than the buffer"),
        ("= i, ", "= i + 1, ", "`vi` takes values 1..8, and its extent is 8"),
        ("in 0..8\n  for j", "in 0..9\n  for j", "`vi` takes values 0..8, and its extent is 8"),
        (
            "for j in 0..8",
            "for j in 0..8 parallel",
            "the parallel loop `j` carries the reduction of block `b`",
        ),
        ("vj: reduce", "vj: spatial", "block `b` has an init and nothing to reduce"),
        ("vi: spatial", "vi: reduce", "block `b` writes `y` at a place that is reduced over"),
        ("block b(", "block b(w: i32 spatial 8 = 0, ", "`w` is i32 and its binding i64"),
        ("= i, ", "= q, ", "variable `q` is used where it is not defined"),
    ],
)
def test_problems_of_blocks(old: str, new: str, sentence: str) -> None:
    text = HEAD + indented(BLOCK.replace(old, new))
    func = parse_func(text.replace("= q,", "= i,"))
    if "q," in new:
        func = _rename_binding(func)
    found = problems_of(func, "scheduled")
    assert any(sentence in item for item in found), found


def _rename_binding(func: Func) -> Func:
    from compiler.core.node import rewrite_nodes
    from compiler.loops.ir import Iter

    def change(item: object) -> Iter | None:
        if isinstance(item, Iter) and item.var.name == "vi":
            return item.replace(binding=Var("q"))
        return None

    return func.replace(body=rewrite_nodes(func.body, change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "region",
    ["x[vi, 0 +: 8]", "x[0 +: 8, 0 +: 8]", "x[vi, vj +: 1]", "x[vi, vj - 1 +: 3]", "x[vi // 2 * 2 +: 2, vj]"],
)
def test_larger_regions_cover(region: str) -> None:
    assert said(BLOCK.replace("reads x[vi, vj]", f"reads {region}"), "scheduled") == []


def test_predicates_and_guards_silence_ranges() -> None:
    body = """
for io in 0..3
  for ii in 0..3
    block b(vi: spatial 8 = io * 3 + ii) where io * 3 + ii < 8
      reads x[vi, 0]
      writes y[vi, 0]
      y[vi, 0] = x[vi, 0]
"""
    assert said(body, "scheduled") == []
    guarded = "for i in 0..9\n  if i < 8\n    y[i, 0] = select(i > 0, x[i - 1, 0], 0.0)"
    assert said(guarded) == []
    masked = "for i in 0..9\n  y[0, i where i < 8] = x[0, i where i < 8 else 0.0]"
    assert said(masked) == []


def test_guarded_writes_of_threads_are_no_race() -> None:
    assert said("for i in 0..8 bound(threadIdx.x)\n  if i == 0\n    y[0, 0] = 1.0") == []
    assert said("for i in 0..8 parallel\n  let q: i64 = i * 2 % 8\n  y[q, 0] = 1.0") == []
    assert said("for i in 0..8 parallel\n  atomic add y[0, 0], x[i, 0]") == []


def test_stages() -> None:
    assert said("y[0, 0] = 1.0", "scheduled") == []
    mixed = BLOCK + "y[0, 1] = 1.0"
    assert any("this work sits in no block" in item for item in said(mixed, "scheduled"))
    assert any("`y` is not flat: it has 2 dimensions" in item for item in said(RIGHT, "flat"))
    flat = "func f(x: f32[64]) -> (y: f32[64])\n  for i in 0..64 {}\n    y[i] = x[i]\n"
    assert problems_of(parse_func(flat.replace(" {}", "")), "flat") == ()
    vectorised = problems_of(parse_func(flat.replace("{}", "vectorized")), "flat")
    assert any("a flat program has no vectorised loops" in item for item in vectorised)


@pytest.mark.parametrize(("kind", "good"), [("unrolled", True), ("", False)])
def test_registers_are_indexed_by_what_is_known_after_unrolling(kind: str, good: bool) -> None:
    text = f"""
func f(x: f32[8]) -> (y: f32[8])
  alloc r: f32[8] @register
  for i in 0..8 {kind}
    r[i] = x[i]
    y[i] = r[i]
"""
    found = problems_of(parse_func(text), "flat")
    assert (found == ()) is good
    assert good or "register buffer `r` is indexed by `i`, which is not unrolled" in found[0]


def test_workspace_is_written_and_read() -> None:
    text = "func f(x: f32[8], w: f32[8]) -> (y: f32[8]) {workspace = 1}\n  w[0] = x[0]\n  y[0] = w[0]\n"
    assert problems_of(parse_func(text), "flat") == ()
    assert problems_of(parse_func(text.replace("{workspace = 1}", "")), "flat") != ()


def test_all_problems_come_at_once_with_their_place() -> None:
    found = said("for i in 0..9\n  y[i, 0] = 1.0:f64\n  x[0, 0] = z_of_nothing:f32()")
    assert len(found) >= 3
    assert any(item.startswith("`y[i, 0] = 1.0:f64`: ") for item in found)


def test_a_buffer_used_differently_from_its_declaration() -> None:
    y = Buffer("y", F32, (const(4),))
    other = Buffer("y", F32, (const(8),))
    found = problems_of(Func("f", (y,), Store(other, (const(6),), const(0, F32))), "lowered")
    assert any("buffer `y` is not used as it was declared" in item for item in found)


def test_what_is_no_expression_is_said() -> None:
    y = Buffer("y", F32, (const(4),))
    bad = Func("f", (y,), Evaluate(Const(1, F32.with_lanes(4))), (), 1)
    assert any("has lanes" in item for item in problems_of(bad, "lowered"))


def test_verify_raises_naming_the_pass_and_every_problem() -> None:
    bad = parse_func(HEAD + "  y[0, 9] = t[0]\n")
    with pytest.raises(InternalError) as caught:
        verify_func(bad, "lowered", after="flatten_buffers")
    assert caught.value.where == "after flatten_buffers"
    assert "never written" in caught.value.why
    assert "lies in 9" in caught.value.why
    with pytest.raises(BadInputError):
        verify_func(bad, "lowered", edited=True)
    verify_func(parse_func(HEAD + indented(RIGHT)), "lowered")


def test_passes_are_verified_one_by_one() -> None:
    right = parse_func(HEAD + indented(RIGHT))
    bad = parse_func(HEAD + "  y[0, 9] = 1.0\n")
    passes = (Pass[Func]("keep", lambda func: func), Pass[Func]("spoil", lambda _func: bad))
    observer = verifying({"keep": "lowered", "spoil": "lowered"})
    with pytest.raises(InternalError) as caught:
        run_passes(passes, right, [observer])
    assert caught.value.where == "after spoil"
    assert run_passes(passes[:1], right, [observer]) is right


def test_it_is_quick() -> None:
    b = Builder("conv")
    x, w = b.input("x", (1, 16, 9, 9)), b.constant("w", (32, 16, 3, 3))
    pad = b.compute(
        "pad",
        (1, 16, 11, 11),
        lambda n, c, h, v: Select(
            all_of(h.ge(1), h.lt(10), v.ge(1), v.lt(10)),
            x[n, c, minimum(maximum(h - 1, 0), 8), minimum(maximum(v - 1, 0), 8)],
            const(0, F32),
        ),
    )
    y = b.reduce(
        "y", (1, 32, 9, 9), (16, 3, 3), lambda n, o, h, v, c, k, m: pad[n, c, h + k, v + m] * w[o, c, k, m]
    )
    func = b.finish([b.compute("z", (1, 32, 9, 9), lambda *i: maximum(y[i], 0.0))])
    started = time.process_time()
    for _ in range(10):
        assert problems_of(func, "imported") == ()
    assert (time.process_time() - started) / 10 < 0.02
