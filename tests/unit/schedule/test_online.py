"""Keys of an attention are looked at part by part: online softmax."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from compiler.core.types import F32
from compiler.loops.build import Builder
from compiler.loops.interp import interpret
from compiler.loops.ir import Binary, Call, Const, Expr, Func
from compiler.loops.verify import verify_func
from compiler.render.vocabulary_cuda import CUDA, HIP
from compiler.schedule.chooser import AnalyticChooser
from compiler.schedule.errors import ScheduleError
from compiler.schedule.rules import schedule_func
from compiler.schedule.rules.threads import online
from compiler.schedule.schedule import Schedule
from compiler.targets import get_target
from tests.support.emulation import Emulated
from tests.unit.schedule.test_scores import HEADS, TOLERANCE, attend, device_text, numbers, wanted

# ---------------------------------------------------------------- the primitive


@pytest.mark.parametrize(
    ("sizes", "part", "rows", "mask"),
    [((8, 24, 4, 5), 8, 4, ""), ((7, 22, 4, 5), 8, 3, "added"), ((7, 22, 4, 5), 22, 7, "causal")],
    ids=["even", "ragged", "whole"],
)
def test_part_by_part_it_is_the_same(sizes: tuple[int, ...], part: int, rows: int, mask: str) -> None:
    func = attend(*sizes, "f32", mask)
    s = Schedule(func)
    s.online_softmax("y", "largest", "total", part, rows)
    verify_func(s.func)
    arrays = numbers(func)
    inputs = {item.name: array for item, array in zip(func.params, arrays, strict=False)}
    (got,) = interpret(s.func, inputs, races=True).values()
    np.testing.assert_allclose(got, wanted(arrays, mask), rtol=0, atol=1e-6)


@pytest.mark.parametrize("hidden", [slice(0, 8), slice(8, 16), slice(16, 22), slice(0, 22)])
def test_parts_in_which_nothing_counts(hidden: slice) -> None:
    """Of a row of -inf there is no softmax; of a part there may be nothing."""
    func = attend(4, 22, 4, 5, "f32", "added")
    s = Schedule(func)
    s.online_softmax("y", "largest", "total", 8, 4)
    arrays = numbers(func)
    arrays[3][hidden] = -np.inf
    inputs = {item.name: array for item, array in zip(func.params, arrays, strict=False)}
    (got,) = interpret(s.func, inputs).values()
    with np.errstate(invalid="ignore"):
        np.testing.assert_allclose(got, wanted(arrays, "added"), rtol=0, atol=1e-6)


def softmax(
    shifted: Callable[[Expr, Expr], Expr] = lambda x, top: x - top,
    divided: Callable[[Expr, Expr], Expr] = lambda power, total: power / total,
    others: bool = False,
    start: float = 0.0,
) -> Func:
    """Rows of 6, weighed and multiplied; `shifted` and `divided` say how."""
    b = Builder("softmax")
    x, v = b.input("x", (4, 6)), b.input("v", (6, 2))
    m = b.reduce("m", (4,), (6,), lambda i, k: x[i, k], combiner="max", dtype=F32)

    def power(i: Expr, k: Expr) -> Expr:
        return Call("exp", (shifted(x[i, k], m[i]),), F32)

    t = b.reduce("t", (4,), (6,), power, dtype=F32)
    y = b.reduce("y", (4, 2), (6,), lambda i, j, k: divided(power(i, k), t[i]) * v[k, j], dtype=F32)
    z = b.compute("z", (4,), lambda i: t[i] + Const(start, F32)) if others else None
    return b.finish([y, z] if z is not None else [y])


def square(total: str = "ik", divisor: str = "i") -> Func:
    """Rows of a batch of as many: `total` and `divisor` say which ones are taken."""
    b = Builder("square")
    x, v = b.input("x", (4, 4, 6)), b.input("v", (6, 2))
    m = b.reduce("m", (4, 4), (6,), lambda h, i, k: x[h, i, k], combiner="max", dtype=F32)

    def power(h: Expr, i: Expr, k: Expr) -> Expr:
        return Call("exp", (x[h, i, k] - m[h, i],), F32)

    def summed(h: Expr, i: Expr, k: Expr) -> Expr:
        return power(i, h, k) if total == "ki" else power(h, i, k)

    t = b.reduce("t", (4, 4), (6,), summed, dtype=F32)

    def weighed(h: Expr, i: Expr, j: Expr, k: Expr) -> Expr:
        return power(h, i, k) / (t[h, i] if divisor == "i" else t[i, h]) * v[k, j]

    return b.finish([b.reduce("y", (4, 4, 2), (6,), weighed, dtype=F32)])


@pytest.mark.parametrize(
    ("func", "what"),
    [
        (square(total="ki"), "does not read m of its own row"),
        (square(divisor="h"), "the total of the same row"),
    ],
)
def test_rows_are_the_same_everywhere(func: Func, what: str) -> None:
    Schedule(square()).online_softmax("y", "m", "t", 4, 3)
    with pytest.raises(ScheduleError) as caught:
        Schedule(func).online_softmax("y", "m", "t", 4, 3)
    assert what in caught.value.why


def test_elements_may_be_powers_themselves() -> None:
    b = Builder("powers")
    x, v = b.input("x", (4, 6)), b.input("v", (6, 2))

    def element(i: Expr, k: Expr) -> Expr:
        return Call("exp", (x[i, k] - Const(1.0, F32),), F32)

    m = b.reduce("m", (4,), (6,), element, combiner="max", dtype=F32)

    def power(i: Expr, k: Expr) -> Expr:
        return Call("exp", (element(i, k) - m[i],), F32)

    t = b.reduce("t", (4,), (6,), power, dtype=F32)
    y = b.reduce("y", (4, 2), (6,), lambda i, j, k: power(i, k) / t[i] * v[k, j], dtype=F32)
    func = b.finish([y])
    s = Schedule(func)
    s.online_softmax("y", "m", "t", 4, 3)
    source = np.random.default_rng(0)
    inputs = {
        "x": source.standard_normal((4, 6), np.float32),
        "v": source.standard_normal((6, 2), np.float32),
    }
    np.testing.assert_allclose(interpret(s.func, inputs)["y"], interpret(func, inputs)["y"], atol=1e-6)


def test_the_softmax_of_the_refusals_is_one() -> None:
    Schedule(softmax()).online_softmax("y", "m", "t", 4, 3)


@pytest.mark.parametrize(
    ("func", "what"),
    [
        (softmax(shifted=lambda x, top: x - top * Const(2.0, F32)), "it has no exp"),
        (softmax(shifted=lambda x, top: x + top), "it has no exp"),
        (softmax(divided=lambda power, total: power - total), "does not divide by the total of the same row"),
        (softmax(divided=lambda power, total: (power + power) / total), "does not multiply exp"),
        (softmax(divided=lambda power, total: power * power / total), "does not multiply exp"),
        (softmax(divided=lambda power, total: Binary("max", power, total) / total), "does not multiply exp"),
        (softmax(others=True), "others than y see its result"),
    ],
    ids=["scaled", "added", "undivided", "doubled", "squared", "compared", "seen"],
)
def test_what_is_no_softmax(func: Func, what: str) -> None:
    with pytest.raises(ScheduleError) as caught:
        Schedule(func).online_softmax("y", "m", "t", 4, 3)
    assert what in caught.value.why


@pytest.mark.parametrize(
    ("prepare", "arguments", "what"),
    [
        (lambda _: None, ("y", "t", "m", 4, 3), "not of the form C = max(C, x)"),
        (lambda _: None, ("y", "m", "t", 7, 3), "4 rows of 6 elements"),
        (lambda _: None, ("y", "m", "t", 4, 5), "4 rows of 6 elements"),
        (lambda _: None, ("y", "m", "t", 0, 3), "4 rows of 6 elements"),
        (lambda s: s.split("y_r0", (None, 2)), ("y", "m", "t", 4, 3), "not the variable of one loop"),
        (
            lambda s: s.decompose_reduction("t", "t_r0"),
            ("y", "m", "t", 4, 3),
            "only the loops of this block",
        ),
    ],
)
def test_what_is_refused(
    prepare: Callable[[Schedule], object], arguments: tuple[str, str, str, int, int], what: str
) -> None:
    s = Schedule(softmax())
    prepare(s)
    with pytest.raises(ScheduleError) as caught:
        s.online_softmax(*arguments)
    assert what in caught.value.why


# ---------------------------------------------------------------- the rule


@pytest.mark.parametrize(
    ("target", "kind", "sizes", "mask"),
    [
        ("cuda:sm_80", "f16", (32, 96, 32, 32), "added"),
        ("cuda:sm_80", "f16", (21, 117, 24, 40), "causal"),
        ("cuda:sm_80", "tf32", (50, 117, 32, 16), "added"),
        ("cuda:sm_75", "f16", (32, 96, 16, 16), ""),
        ("cuda:sm_80", "f32", (21, 117, 20, 12), "causal"),
        ("rocm:gfx90a", "f16", (21, 117, 24, 40), "added"),
        ("rocm:gfx906", "f32", (32, 96, 16, 16), ""),
    ],
)
def test_what_it_computes_part_by_part(
    target: str, kind: str, sizes: tuple[int, ...], mask: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(online, "_PARTS", (32,))
    func = attend(*sizes, kind, mask)
    device = device_text(func, target, kind, together=32)
    (launch,) = device.launches
    arrays = numbers(func)
    if mask == "added":
        arrays[3][:32] = -np.inf
    got = np.zeros((HEADS, sizes[0], sizes[3]), np.float32)
    emulated = Emulated((HIP if "rocm" in target else CUDA).module([device.text]))
    assert emulated.launch(launch.name, launch.grid, launch.block, [*arrays, got]) == ""
    np.testing.assert_allclose(got, wanted(arrays, mask), rtol=0, atol=TOLERANCE[kind])


def test_more_keys_take_no_more_shared_memory() -> None:
    texts = [
        device_text(attend(64, keys, 64, 64, "f16", "added"), "cuda:sm_90", "f16", together=256)
        for keys in (1024, 16384)
    ]
    assert len({launch.shared_bytes for text in texts for launch in text.launches}) == 1


@pytest.mark.parametrize(
    ("target", "tokens", "online"), [("cuda:sm_90", 4096, True), ("rocm:gfx90a", 2048, False)]
)
def test_part_by_part_where_that_takes_less(target: str, tokens: int, online: bool) -> None:
    """Where a unit has 64 KB there is no room for enough rows, and scores have a launch of their own."""
    chooser = AnalyticChooser()
    facts = get_target(target, precision="f16").facts
    schedule_func(attend(tokens, tokens, 64, 64, "f16", "added"), {}, facts, chooser)
    (part,) = chooser.decisions["attention.together"]
    assert (1 < part < tokens) == online
    assert (part == 0) != online
