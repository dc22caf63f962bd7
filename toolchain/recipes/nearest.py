"""The closest combination that no rule refuses: computed by changing as little as possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice, product
from typing import TYPE_CHECKING

from toolchain.recipes.names import ChosenComponent, Combination
from toolchain.recipes.rules import facts_of, judge
from toolchain.recipes.schema import Rule

if TYPE_CHECKING:
    from toolchain.recipes.catalog import RecipeCatalog

_MOST_CHANGES = 3
_MOST_TRIED = 5_000


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to set one part of a combination, and how far it is from what was asked."""

    distance: int
    part: ChosenComponent | None = None
    row: int = -1
    base: int = -1


def nearest(
    combination: Combination,
    archs: tuple[str, ...],
    catalog: RecipeCatalog,
    allow: frozenset[str] = frozenset(),
) -> Combination | None:
    """Change the fewest parts, then add the fewest warnings, then move the fewest listed versions.

    Versions of the same stack and of the named components are tried, on other bases too, and components
    that a refusing rule misses are added; only when all that fails, components that exclude each other are
    left out, or the vendor's other stacks tried. Archs stay: they are the user's device. None where nothing
    works.
    """
    choices = [_stack_options(combination), *_component_options(combination, catalog)]
    choices += _additions(combination, archs, catalog, allow)
    for changes in range(1, min(_MOST_CHANGES, len(choices)) + 1):
        groups = (picked for group in combinations(choices, changes) for picked in product(*group))
        candidates = [
            (sum(one.distance for one in picked), _apply(combination, picked))
            for picked in islice(groups, _MOST_TRIED)
        ]
        if (best := _best(candidates, archs, catalog, allow)) is not None:
            return best
    without = _best(list(_without(combination, archs, catalog, allow)), archs, catalog, allow)
    return without or _best(list(_other_stacks(combination, choices[1:], catalog)), archs, catalog, allow)


def _best(
    candidates: Sequence[tuple[int, Combination]],
    archs: tuple[str, ...],
    catalog: RecipeCatalog,
    allow: frozenset[str],
) -> Combination | None:
    """The candidate with the fewest warnings, then the shortest distance, that no rule refuses."""
    judged = [(_warnings(one, archs, catalog, allow), distance, one) for distance, one in candidates]
    working = [one for one in judged if one[0] >= 0]
    return min(working, key=lambda one: one[:2])[2] if working else None


def _refusing(
    combination: Combination, archs: tuple[str, ...], catalog: RecipeCatalog, allow: frozenset[str]
) -> list[Rule]:
    system = catalog.systems[combination.base.system].row
    found = judge(facts_of(combination, system, catalog, archs), catalog)
    return [one.row for one in found if one.row.verdict == "refuse" and one.row.id not in allow]


def _without(
    combination: Combination, archs: tuple[str, ...], catalog: RecipeCatalog, allow: frozenset[str]
) -> Iterator[tuple[int, Combination]]:
    """One component fewer, where a rule says that two of them exclude each other; the last named stays."""
    for rule in _refusing(combination, archs, catalog, allow):
        meant = [
            one for one in combination.parts if {one.name, *one.entry.row.provides} & rule.when.has.keys()
        ]
        for distance, part in enumerate(meant if len(meant) > 1 else ()):
            others = tuple(one for one in combination.parts if one is not part)
            yield distance, replace(combination, parts=others, environment=None)


def _other_stacks(
    combination: Combination, choices: Sequence[Sequence[_Option]], catalog: RecipeCatalog
) -> Iterator[tuple[int, Combination]]:
    """The same components, or one of them changed or added, on the vendor's other stacks; newest first."""
    own = combination.stack.stack
    variants = [(0, combination)]
    for options in choices:
        variants += [(len(own.rows) + one.distance, _apply(combination, [one])) for one in options]
    for stack in catalog.stacks.values():
        if stack.stack.stack == own.stack or stack.stack.vendor != own.vendor:
            continue
        for (changed, variant), (older, entry) in product(variants, enumerate(reversed(stack.rows))):
            base = entry.row.bases[0]
            yield changed + older, replace(variant, stack=stack, entry=entry, base=base, environment=None)


def _warnings(
    candidate: Combination, archs: tuple[str, ...], catalog: RecipeCatalog, allow: frozenset[str]
) -> int:
    """How many rules warn; -1 when one refuses."""
    system = catalog.systems[candidate.base.system].row
    found = judge(facts_of(candidate, system, catalog, archs), catalog)
    if any(one.row.verdict == "refuse" and one.row.id not in allow for one in found):
        return -1
    return len(found)


def _stack_options(combination: Combination) -> list[_Option]:
    """Other versions and bases: on the system that was asked for, or else on the usual one, if there is."""
    rows = combination.stack.rows
    own = rows.index(combination.entry)
    wanted = combination.base.system if combination.base is not combination.row.bases[0] else None
    options = []
    for index, entry in enumerate(rows):
        for number, base in enumerate(entry.row.bases):
            moved = number if wanted is None else int(base.system != wanted)
            if base is not combination.base:
                options.append(_Option(2 * abs(index - own) + moved, row=index, base=number))
    return options


def _component_options(combination: Combination, catalog: RecipeCatalog) -> Iterator[list[_Option]]:
    for part in combination.parts:
        releases = catalog.components[part.name].releases
        own = releases.index(part.entry)
        yield [
            _Option(2 * abs(index - own), part=ChosenComponent(part.name, one.row.version, one))
            for index, one in enumerate(releases)
            if index != own and one.row.shape is None
        ]


def _additions(
    combination: Combination, archs: tuple[str, ...], catalog: RecipeCatalog, allow: frozenset[str]
) -> Iterator[list[_Option]]:
    """Components that refusing rules miss, newest first."""
    refusing = _refusing(combination, archs, catalog, allow)
    missing = dict.fromkeys(
        name for rule in refusing for name in rule.when.lacks if name in catalog.components
    )
    for name in missing:
        releases = [one for one in reversed(catalog.components[name].releases) if one.row.shape is None]
        yield [
            _Option(2 * index, part=ChosenComponent(name, one.row.version, one))
            for index, one in enumerate(releases)
        ]


def _apply(combination: Combination, picked: Sequence[_Option]) -> Combination:
    for option in picked:
        if option.part is not None:
            combination = combination.with_part(option.part)
        else:
            entry = combination.stack.rows[option.row]
            combination = replace(combination, entry=entry, base=entry.row.bases[option.base])
    return replace(combination, environment=None)
