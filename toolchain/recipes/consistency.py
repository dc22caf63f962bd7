"""What no single record can tell: names that recipes mention exist, and specifiers can be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from compiler import TkError, did_you_mean
from toolchain.recipes.check import Problems
from toolchain.recipes.fill import PLACEHOLDER
from toolchain.recipes.names import parse_expression
from toolchain.recipes.schema import Condition
from toolchain.recipes.strict_yaml import YamlNode
from toolchain.recipes.versions import is_specifier

if TYPE_CHECKING:
    from toolchain.recipes.catalog import RecipeCatalog


def cross_check(catalog: RecipeCatalog, problems: Problems) -> None:
    """Add what is wrong between records to `problems`."""
    _systems(catalog, problems)
    if problems:
        return
    known = subjects(catalog)
    for where, condition in _conditions(catalog):
        for name, specifier in condition.has.items():
            if not is_specifier(specifier):
                problems.append((where, f"`{specifier}` is no specifier of versions"))
            _known(name, known, where, problems)
        for name in condition.lacks:
            _known(name, known, where, problems)
    for node in (one.node for one in catalog.entries()):
        for where, name in _placeholders(node):
            if "." in name:
                _known(name.partition(".")[0], known, where, problems)
    _expressions(catalog, problems)
    _target_vendors(catalog, problems)
    _followed_issues(catalog, problems)


def _followed_issues(catalog: RecipeCatalog, problems: Problems) -> None:
    for issue in catalog.issues.values():
        for name in issue.row.follows:
            if name not in catalog.issues:
                hint = did_you_mean(name, catalog.issues) or "nothing known has that id"
                problems.append((issue.where, f"unknown issue `{name}` in `follows`; {hint}"))


def subjects(catalog: RecipeCatalog) -> set[str]:
    """Everything that a condition may ask about."""
    known = {*catalog.stacks, *catalog.components, *(one.row.system for one in catalog.systems.values())}
    for system in catalog.systems.values():
        known |= system.row.provides.keys()
    for stack in catalog.stacks.values():
        for entry in stack.rows:
            known |= entry.row.provides.keys() | entry.row.prefixes.keys()
            known |= {name for base in entry.row.bases for name in base.provides}
    for component in catalog.components.values():
        for release in component.releases:
            known |= release.row.provides.keys() | release.row.prefixes.keys()
    return known


def _systems(catalog: RecipeCatalog, problems: Problems) -> None:
    for stack in catalog.stacks.values():
        for entry in stack.rows:
            for base in entry.node.entries()["bases"].items():
                name = base.entries()["system"]
                if name.content not in catalog.systems:
                    text = str(name.content)
                    hint = did_you_mean(text, catalog.systems) or f"known: {', '.join(catalog.systems)}"
                    problems.append((name.where, f"no system is called `{text}`; {hint}"))


def _known(name: str, known: set[str], where: str, problems: Problems) -> None:
    if name not in known:
        hint = did_you_mean(name, known) or "nothing listed is or provides it"
        problems.append((where, f"unknown name `{name}`; {hint}"))


def _conditions(catalog: RecipeCatalog) -> Iterator[tuple[str, Condition]]:
    for rule in catalog.rules.values():
        yield rule.where, rule.row.when
    for issue in catalog.issues.values():
        yield issue.where, issue.row.when
    for component in catalog.components.values():
        yield from ((component.releases[0].where, one) for one in component.component.automatic)
    for node in (one.node for one in catalog.entries()):
        yield from ((one.where, Condition.model_validate(one.plain())) for one in _whens(node))


def _inner(node: YamlNode) -> Iterator[YamlNode]:
    yield from node.items()
    yield from node.entries().values()


def _whens(node: YamlNode) -> Iterator[YamlNode]:
    if "when" in node.entries():
        yield node.entries()["when"]
    for one in _inner(node):
        yield from _whens(one)


def _placeholders(node: YamlNode) -> Iterator[tuple[str, str]]:
    """(file:line, name) of the placeholders in a record."""
    if isinstance(node.content, str):
        yield from ((node.where, match[1]) for match in PLACEHOLDER.finditer(node.content))
    for one in _inner(node):
        yield from _placeholders(one)


def _expressions(catalog: RecipeCatalog, problems: Problems) -> None:
    """Images that environments and targets name can be resolved, and no name means two things."""
    named = [(one.where, one.row.image) for one in catalog.environments.values()]
    named += [
        (one.where, image)
        for one in catalog.targets.values()
        for image in one.row.images
        if image not in catalog.environments
    ]
    for where, image in named:
        try:
            parse_expression(image, catalog)
        except TkError as error:
            problems.append((where, f"{error.what}{'; ' if error.hint else ''}{error.hint}"))
    for name, entry in catalog.environments.items():
        if name in catalog.stacks or name in catalog.components:
            problems.append((entry.where, f"`{name}` is the name of a stack or component, too"))


def _target_vendors(catalog: RecipeCatalog, problems: Problems) -> None:
    """A target whose images are a vendor's says whose accelerators it needs: jobs get devices by that."""
    for entry in catalog.targets.values():
        vendors = {vendor for image in entry.row.images if (vendor := _vendor_of(image, catalog)) != "none"}
        if entry.row.vendor == "none" and vendors:
            said = f"`{entry.row.target}` has no vendor, and its images are for {', '.join(sorted(vendors))}"
            problems.append((entry.where, said))


def _vendor_of(image: str, catalog: RecipeCatalog) -> str:
    named = catalog.environments.get(image)
    try:
        return parse_expression(named.row.image if named else image, catalog).stack.stack.vendor
    except TkError:  # said with the expressions
        return "none"
