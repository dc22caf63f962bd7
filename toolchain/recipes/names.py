"""Names as users type them: `STACK[-VERSION][+COMPONENT[-VERSION]]...[+SYSTEM-VERSION]`.

An environment has a name of its own, which stands for such an expression.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from compiler import UsageError, did_you_mean
from toolchain.recipes.schema import Base, Environment, Release, StackRow
from toolchain.recipes.versions import shape_matches, starts_with

if TYPE_CHECKING:
    from toolchain.recipes.catalog import ComponentCatalog, Entry, RecipeCatalog, StackCatalog

_MOST = 200
_MOST_PARTS = 12
_VERSION = "{version}"


@dataclass(frozen=True, slots=True)
class ChosenComponent:
    """One component of a combination; `version` as it is named, which a shape may have matched."""

    name: str
    version: str
    entry: Entry[Release]


@dataclass(frozen=True, slots=True)
class Combination:
    """A stack's version on one of its bases, and components in canonical order; `choices`: (what, why)."""

    stack: StackCatalog
    entry: Entry[StackRow]
    base: Base
    parts: tuple[ChosenComponent, ...] = ()
    environment: Environment | None = None
    choices: tuple[tuple[str, str], ...] = ()

    @property
    def row(self) -> StackRow:
        return self.entry.row

    @property
    def name(self) -> str:
        """The canonical name: every version in full; the system only where it is not the default."""
        names = [stack_name(self.stack, self.row.version)]
        names += [f"{one.name}-{one.version}" for one in self.parts]
        if self.base is not self.row.bases[0]:
            names.append(self.base.system)
        return "+".join(names)

    def with_part(self, part: ChosenComponent) -> Combination:
        """The same with a component added or in place of another release of it."""
        others = [one for one in self.parts if one.name != part.name]
        return replace(self, parts=tuple(sorted([*others, part], key=lambda one: one.name)))


def stack_name(stack: StackCatalog, version: str) -> str:
    """How a stack's version is typed: `rocm-5.4.3`, `rocm-5.2.3-debian`, `cpu`."""
    return stack.stack.name.replace(_VERSION, version)


def parse_name(name: str, catalog: RecipeCatalog) -> Combination:
    """Find what a name stands for; raises UsageError with the closest known name."""
    if len(name) > _MOST or not re.fullmatch(r"[0-9A-Za-z._+-]+", name):
        shown = name if len(name) <= _MOST and name.isprintable() else f"{name[:40]!r}..."
        raise UsageError(
            f"`{shown}` is no name of an image",
            why="a name has letters, digits, `.`, `_`, `-`, and `+` between its parts",
            hint="see `tk image list`",
        )
    if name in catalog.environments:
        return _environment(name, catalog)
    return parse_expression(name, catalog)


def parse_expression(name: str, catalog: RecipeCatalog) -> Combination:
    """The same for a name that is no environment's."""
    first, *rest = name.split("+")
    if len(rest) >= _MOST_PARTS:
        raise UsageError(f"`{name}` has too many parts", why=f"the limit is {_MOST_PARTS}")
    stack, entry, why = _stack(first, catalog)
    found = Combination(stack, entry, entry.row.bases[0], choices=(why,))
    for text in rest:
        found = _add(text, found, name, catalog)
    return found


def _environment(name: str, catalog: RecipeCatalog) -> Combination:
    record = catalog.environments[name].row
    found = parse_expression(record.image, catalog)
    named = (record.image, f"what `{name}` stands for ({catalog.environments[name].where})")
    return replace(found, environment=record, choices=(named, *found.choices))


def _stack(text: str, catalog: RecipeCatalog) -> tuple[StackCatalog, Entry[StackRow], tuple[str, str]]:
    matches = [
        (stack, entry)
        for stack in catalog.stacks.values()
        for entry in stack.rows
        if (beginning := _typed_version(stack.stack.name, text)) is not None
        and (not beginning or starts_with(entry.row.version, beginning))
    ]
    exact = [one for one in matches if stack_name(one[0], one[1].row.version) == text]
    if not matches:
        raise _unknown_stack(text, catalog)
    stack, entry = (exact or _of_one_stack(matches))[-1]
    chosen = stack_name(stack, entry.row.version)
    if exact:
        return stack, entry, (chosen, "named in full")
    why = f"the newest listed of {len(matches)}" if len(matches) > 1 else "the only one listed"
    return stack, entry, (chosen, f"`{text}` is {why}")


def _of_one_stack(
    matches: Sequence[tuple[StackCatalog, Entry[StackRow]]],
) -> list[tuple[StackCatalog, Entry[StackRow]]]:
    """Several stacks match when a bare name is another's beginning, too: the shortest is meant."""
    shortest = min(matches, key=lambda one: len(one[0].stack.name))[0]
    return [one for one in matches if one[0] is shortest]


def _typed_version(pattern: str, text: str) -> str | None:
    """The version in a typed name: empty when none was typed, None when the name is another stack's."""
    if text in (pattern, pattern.replace(f"-{_VERSION}", "")):
        return ""
    if _VERSION not in pattern:
        return None
    before, after = pattern.split(_VERSION)
    if not text.startswith(before) or not text.endswith(after):
        return None
    version = text[len(before) : len(text) - len(after)]
    return version or None


def _unknown_stack(text: str, catalog: RecipeCatalog) -> UsageError:
    names = [stack_name(stack, one.row.version) for stack in catalog.stacks.values() for one in stack.rows]
    bare = [stack.stack.name.replace(f"-{_VERSION}", "") for stack in catalog.stacks.values()]
    for stack in catalog.stacks.values():
        if _typed_version(stack.stack.name, text):
            listed = ", ".join(one.row.version for one in stack.rows)
            return UsageError(
                f"no version of {stack.stack.title} is listed as `{text}`",
                why=f"listed: {listed}",
                hint=did_you_mean(text, names) or "a version is one row in a recipe; see docs/recipes.md",
            )
    hint = did_you_mean(text, [*names, *bare, *catalog.environments]) or "see `tk image list`"
    for target in (one.row for one in catalog.targets.values()):
        if text in (target.target, *target.aliases):
            hint = f"`{text}` is a compile target, and `{target.images[0]}` its image"
    return UsageError(f"no stack is called `{text}`", why=f"stacks: {', '.join(bare)}", hint=hint)


def _add(text: str, found: Combination, name: str, catalog: RecipeCatalog) -> Combination:
    if _is_system(text, catalog):
        return _on_system(text, found)
    component, typed = _split(text, catalog)
    if any(one.name == component for one in found.parts):
        raise UsageError(f"`{name}` names {component} twice", hint="name each component once")
    part, why = _release(catalog.components[component], text, typed)
    return replace(found.with_part(part), choices=(*found.choices, why))


def _is_system(text: str, catalog: RecipeCatalog) -> bool:
    return text in catalog.systems or text in {one.rpartition("-")[0] for one in catalog.systems}


def _on_system(text: str, found: Combination) -> Combination:
    for base in found.row.bases:
        if text in (base.system, base.system.rpartition("-")[0]):
            return replace(found, base=base, choices=(*found.choices, (base.system, "the base asked for")))
    chosen = stack_name(found.stack, found.row.version)
    bases = ", ".join(base.system for base in found.row.bases)
    raise UsageError(f"no base of {chosen} on {text} is listed", why=f"listed: {bases}")


def _split(text: str, catalog: RecipeCatalog) -> tuple[str, str]:
    """Component and version of `tvm-sycl-0.10`; the longest component name wins."""
    fitting = [one for one in catalog.components if text == one or text.startswith(f"{one}-")]
    if not fitting:
        known: Iterable[str] = (*catalog.components, *catalog.systems, *_full_names(catalog.components))
        hint = did_you_mean(text, known) or f"components: {', '.join(sorted(catalog.components))}"
        raise UsageError(f"no component is called `{text}`", hint=hint)
    component = max(fitting, key=len)
    return component, text[len(component) + 1 :]


def _full_names(components: Mapping[str, ComponentCatalog]) -> list[str]:
    return [f"{name}-{one.row.version}" for name, catalog in components.items() for one in catalog.releases]


def _release(component: ComponentCatalog, text: str, typed: str) -> tuple[ChosenComponent, tuple[str, str]]:
    name = component.component.component
    listed = [one for one in component.releases if one.row.shape is None]
    for one in component.releases:
        if one.row.version == typed:
            return ChosenComponent(name, typed, one), (f"{name}-{typed}", "named in full")
    matches = [one for one in listed if not typed or starts_with(one.row.version, typed)]
    if matches:
        chosen = matches[-1]
        why = "the newest listed" if len(matches) > 1 else "the only one listed"
        full = f"{name}-{chosen.row.version}"
        return ChosenComponent(name, chosen.row.version, chosen), (full, f"`{text}` is {why}")
    for one in component.releases:
        if one.row.shape is not None and shape_matches(one.row.shape, typed):
            return ChosenComponent(name, typed, one), (f"{name}-{typed}", f"has the form {one.row.shape}")
    versions = [one.row.version for one in component.releases]
    raise UsageError(
        f"no release of {component.component.title} is listed as `{text}`",
        why=f"listed: {', '.join(versions)}",
        hint=did_you_mean(typed, versions) or "a release is one row in a recipe; see docs/recipes.md",
    )
