"""The memory plan: never two alive tensors in one place, never more than needed."""

from __future__ import annotations

from itertools import combinations, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compiler.graph.memory import ALIGNMENT, Lifetime, MemoryPlan, align, plan_memory


def lifetimes(most: int) -> st.SearchStrategy[list[Lifetime]]:
    one = st.tuples(st.integers(0, 1000), st.integers(0, 12), st.integers(0, 6))
    return st.lists(one, max_size=most).map(
        lambda rows: [Lifetime(n, size, first, first + more) for n, (size, first, more) in enumerate(rows)]
    )


def meet(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last


def overlap(plan: MemoryPlan, a: Lifetime, b: Lifetime) -> bool:
    begin_a, begin_b = plan.offsets[a.key], plan.offsets[b.key]
    return begin_a < begin_b + max(1, b.bytes) and begin_b < begin_a + max(1, a.bytes)


def peak(items: list[Lifetime]) -> int:
    """No plan is smaller than what is alive at one step."""
    steps = {step for item in items for step in (item.first, item.last)}
    return max((sum(align(i.bytes) for i in items if i.first <= s <= i.last) for s in steps), default=0)


def first_fit(order: tuple[Lifetime, ...]) -> int:
    placed: list[tuple[int, Lifetime]] = []
    for item in order:
        offset = 0
        for begin, other in sorted(placed, key=lambda entry: entry[0]):
            if meet(item, other) and begin < offset + align(item.bytes):
                offset = max(offset, begin + align(other.bytes))
        placed.append((offset, item))
    return max((begin + align(item.bytes) for begin, item in placed), default=0)


@settings(max_examples=300, deadline=None)
@given(lifetimes(14))
def test_tensors_alive_together_never_overlap(items: list[Lifetime]) -> None:
    plan = plan_memory(items)
    assert plan.offsets.keys() == {item.key for item in items}
    for a, b in combinations(items, 2):
        assert not (meet(a, b) and overlap(plan, a, b))
    for item in items:
        assert plan.offsets[item.key] % ALIGNMENT == 0
        assert plan.offsets[item.key] + item.bytes <= plan.bytes


@settings(max_examples=300, deadline=None)
@given(lifetimes(14))
def test_a_plan_lies_between_the_peak_and_the_sum(items: list[Lifetime]) -> None:
    assert peak(items) <= plan_memory(items).bytes <= sum(align(item.bytes) for item in items)


@settings(max_examples=40, deadline=None)
@given(lifetimes(5))
def test_few_tensors_are_placed_about_as_well_as_in_any_order(items: list[Lifetime]) -> None:
    best = min((first_fit(order) for order in permutations(items)), default=0)
    assert plan_memory(items).bytes <= 1.5 * best


def chain(*sizes: int) -> list[Lifetime]:
    """Each tensor is read by the step after the one that writes it."""
    return [Lifetime(n, size, n, n + 1) for n, size in enumerate(sizes)]


@pytest.mark.parametrize(
    ("items", "expected"),
    [
        ([], 0),
        (chain(640), 640),
        (chain(640, 640), 1280),
        (chain(640, 640, 640, 640, 640), 1280),
        (chain(6400, 64, 6400, 64), 6464),
        ([Lifetime("skip", 128, 0, 9), *chain(640, 640, 640)], 1408),
        ([Lifetime("a", 64, 0, 1), Lifetime("b", 64, 1, 2), Lifetime("c", 128, 2, 3)], 192),
        ([Lifetime("a", 64, 0, 0), Lifetime("b", 64, 1, 1)], 64),
    ],
)
def test_the_optimum_of_small_cases(items: list[Lifetime], expected: int) -> None:
    assert plan_memory(items).bytes == expected == peak(items)


def test_an_empty_tensor_has_a_place_of_its_own() -> None:
    plan = plan_memory([Lifetime("a", 0, 0, 1), Lifetime("b", 0, 1, 2)])
    assert len(set(plan.offsets.values())) == 2
    assert plan.bytes == 2 * ALIGNMENT


def test_the_same_input_gives_the_same_plan() -> None:
    items = [Lifetime(n, 64 * (n % 3 + 1), n % 5, n % 5 + n % 4) for n in range(40)]
    assert plan_memory(items) == plan_memory(list(items))


@pytest.mark.parametrize(("size", "expected"), [(0, 64), (1, 64), (64, 64), (65, 128)])
def test_sizes_are_whole_lines(size: int, expected: int) -> None:
    assert align(size) == expected
