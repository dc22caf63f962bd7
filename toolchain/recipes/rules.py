"""Compatibility rules: what is chosen and provided, whether a condition holds, what the rules say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolchain.recipes.names import ChosenComponent, Combination
from toolchain.recipes.schema import Condition, Rule, System
from toolchain.recipes.versions import meets

if TYPE_CHECKING:
    from toolchain.recipes.catalog import ComponentCatalog, Entry, RecipeCatalog


@dataclass(frozen=True, slots=True)
class Facts:
    """What conditions are asked about.

    versions: of everything chosen or provided, in a form that can be compared (dates where a component has
    them). provides: the same as it is named. asked: archs as asked for; archs: after aliases.
    """

    versions: Mapping[str, str]
    provides: Mapping[str, str]
    prefixes: Mapping[str, str]
    asked: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    listed_archs: tuple[str, ...] = ()


def facts_of(
    combination: Combination, system: System, catalog: RecipeCatalog, archs: tuple[str, ...] = ()
) -> Facts:
    """Collect what system, base, stack and components provide; what is more particular wins."""
    row = combination.row
    provides = {system.system: system.version, **system.provides, **combination.base.provides, **row.provides}
    provides[combination.stack.stack.stack] = row.version
    prefixes = {**system.prefixes, **row.prefixes}
    versions = dict(provides)
    for part in combination.parts:
        release = part.entry.row
        provides |= {**release.provides, part.name: part.version}
        versions |= {**release.provides, part.name: _comparable(part, catalog.components[part.name])}
        prefixes |= release.prefixes
    asked = archs or (combination.environment.archs if combination.environment else ()) or row.default_archs
    named = tuple(dict.fromkeys(row.arch_aliases.get(one, one) for one in asked))
    return Facts(versions, provides, prefixes, asked, named, row.archs)


def _comparable(part: ChosenComponent, component: ComponentCatalog) -> str:
    return part.entry.row.released if component.component.by_date else part.version


def holds(condition: Condition, facts: Facts) -> bool:
    """Whether all parts of a condition hold."""
    if any(name in facts.versions for name in condition.lacks):
        return False
    if condition.archs and not {*facts.asked, *facts.archs} & {*condition.archs}:
        return False
    if condition.unsupported_arch and not unsupported_archs(facts):
        return False
    return all(
        name in facts.versions and meets(facts.versions[name], specifier)
        for name, specifier in condition.has.items()
    )


def unsupported_archs(facts: Facts) -> tuple[str, ...]:
    """The archs that the stack's compiler does not have; none where the recipe lists none."""
    return tuple(one for one in facts.archs if facts.listed_archs and one not in facts.listed_archs)


def judge(facts: Facts, catalog: RecipeCatalog) -> list[Entry[Rule]]:
    """The rules that have something to say, refusals first.

    The general rule on archs is silent where a rule on that very arch gives the better reason.
    """
    found = [one for one in catalog.rules.values() if holds(one.row.when, facts)]
    particular = any(one.row.when.archs and one.row.verdict == "refuse" for one in found)
    kept = [one for one in found if not (particular and one.row.when.unsupported_arch)]
    return sorted(kept, key=lambda one: one.row.verdict != "refuse")
