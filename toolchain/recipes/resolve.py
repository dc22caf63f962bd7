"""What a typed name stands for: stack, base, components, archs, and what the rules say about them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel

from compiler import BadInputError, UsageError, did_you_mean
from toolchain.recipes.additions import NOTHING, Additions
from toolchain.recipes.catalog import Entry, RecipeCatalog, load_catalog
from toolchain.recipes.layers import build_of, layer_of, with_layers
from toolchain.recipes.names import ChosenComponent, Combination, parse_name
from toolchain.recipes.nearest import nearest
from toolchain.recipes.rules import Facts, facts_of, holds, judge
from toolchain.recipes.schema import Base, Build, Environment, Layer, Release, Rule, StackRow, System

__all__ = ["Component", "RecipeCatalog", "Resolution", "RuleHit", "load_catalog", "resolve"]

# What explains a recipe and does not change the image.
_EXPLAINS = {"source", "sources", "when", "because", "exceptions", "notes", "title"}


@dataclass(frozen=True, slots=True)
class Component:
    """One chosen thing: the stack's version, or a component added to it.

    row: the checked recipe row. layer: what it adds to the image; conditions decided, placeholders filled in.
    build: how it is built in an image of its own, decided likewise; None when it is only installed.
    where: file:line of the row.
    """

    kind: str
    version: str
    row: StackRow | Release
    layer: Layer
    build: Build | None
    where: str


@dataclass(frozen=True, slots=True)
class Substitute:
    """What takes the place of a base that is gone: another base, and the stack's layer on it."""

    base: Base
    layer: Layer


@dataclass(frozen=True, slots=True)
class RuleHit:
    """What a rule says about a combination; `nearest` is the closest combination that no rule refuses."""

    rule: str
    verdict: Literal["refuse", "warn"]
    because: str
    source: str
    nearest: str
    advice: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a typed name stands for.

    asked: as typed; name: canonical, `rocm-5.4.3+dpcpp-2022-12`. provides, prefixes: of system, base, stack
    and components together. choices: (what was chosen, why). allowed: refusing rules waived with `--allow`.
    recipe_hash: sha256 of everything in the recipes that decides the image, in hex. additions: what a user
    adds beside the recipe.
    """

    asked: str
    name: str
    title: str
    vendor: str
    stack: Component
    base: Base
    system: System
    system_layer: Layer
    components: tuple[Component, ...]
    archs: tuple[str, ...]
    provides: Mapping[str, str]
    prefixes: Mapping[str, str]
    findings: tuple[RuleHit, ...]
    allowed: tuple[str, ...]
    choices: tuple[tuple[str, str], ...]
    environment: Environment | None
    recipe_hash: str
    fallbacks: tuple[Substitute, ...] = ()
    additions: Additions = NOTHING

    @property
    def baked_archs(self) -> tuple[str, ...]:
        """The archs that something in the image is built for; with none it is good for all."""
        return self.archs if any(getattr(one.row, "bakes_arch", False) for one in self.components) else ()

    @property
    def section(self) -> str:
        """What its section in a lock is called: `rocm-5.4.3`, `tvm-sycl-rocm@gfx906,gfx90a`.

        Typed as the name of an image it stands for the same plan, so it has the archs that something in the
        image is built for, and an environment has a section of its own.
        """
        name = self.name
        if self.environment is not None:
            name = self.environment.name + (f"+with-{self.additions.digits}" if self.additions else "")
        return f"{name}@{','.join(self.baked_archs)}" if self.baked_archs else name


@dataclass(frozen=True, slots=True)
class Examination:
    """A combination with what the rules say, before anything is decided about layers.

    asked: as typed; name: canonical, without components that are added by themselves.
    """

    asked: str
    name: str
    combination: Combination
    facts: Facts
    findings: tuple[RuleHit, ...]
    choices: tuple[tuple[str, str], ...]
    allowed: tuple[str, ...]

    @property
    def refusing(self) -> tuple[RuleHit, ...]:
        """The refusals that are not waived."""
        return tuple(one for one in self.findings if one.verdict == "refuse" and one.rule not in self.allowed)


def examine(
    name: str, catalog: RecipeCatalog, *, archs: Sequence[str] = (), allow: Sequence[str] = ()
) -> Examination:
    """Find what a name stands for and ask the rules; refusals are among the findings.

    The name may end in its archs, as sections of a lock are named: `NAME@ARCH,ARCH`. Raises UsageError for an
    unknown name, arch or rule.
    """
    _known_rules(allow, catalog)
    plain, _, named = name.partition("@")
    combination = parse_name(plain, catalog)
    asked = _known_archs(archs or [one for one in named.split(",") if one], combination, catalog)
    if not asked and combination.environment is not None:
        asked = combination.environment.archs
    system = catalog.systems[combination.base.system].row
    facts = facts_of(combination, system, catalog, asked)
    findings = _findings(combination, asked, facts, catalog, frozenset(allow))
    whole, added = _with_automatic(combination, facts, catalog)
    return Examination(
        asked=name,
        name=combination.name,
        combination=whole,
        facts=facts_of(whole, system, catalog, asked),
        findings=findings,
        choices=(*combination.choices, *_choices(combination, facts, asked), *added),
        allowed=tuple(one.rule for one in findings if one.verdict == "refuse" and one.rule in allow),
    )


def resolve(
    name: str, catalog: RecipeCatalog, *, archs: Sequence[str] = (), allow: Sequence[str] = ()
) -> Resolution:
    """Find what a name stands for and ask the rules.

    Raises UsageError for an unknown name, arch or rule, BadInputError when a rule refuses that `allow` does
    not name, or when a recipe has a placeholder that nothing in the combination fills.
    """
    found = examine(name, catalog, archs=archs, allow=allow)
    if found.refusing:
        raise refusal_error(found)
    whole, facts = found.combination, found.facts
    system = catalog.systems[whole.base.system]
    values = _values(facts, whole, system.row)
    stack = _component(whole.stack.stack.stack, whole.row.version, whole.entry, facts, values)
    components = tuple(_component(one.name, one.version, one.entry, facts, values) for one in whole.parts)
    system_layer = layer_of(system.content, facts, values, system.where)
    baked = facts.archs if any(one.entry.row.bakes_arch for one in whole.parts) else ()
    title = whole.environment.title if whole.environment else whole.stack.stack.title
    return Resolution(
        asked=name,
        name=found.name,
        title=title,
        vendor=whole.stack.stack.vendor,
        stack=stack,
        base=whole.base,
        fallbacks=tuple(_substitutes(whole.base, stack.layer, facts)),
        system=system.row,
        system_layer=system_layer,
        components=components,
        archs=facts.archs,
        provides=facts.provides,
        prefixes=facts.prefixes,
        findings=found.findings,
        allowed=found.allowed,
        choices=found.choices,
        environment=whole.environment,
        recipe_hash=_hash(whole, system.row, system_layer, (stack, *components), baked),
    )


def refusal_error(found: Examination) -> BadInputError:
    """The error for a combination that rules refuse: every rule with reason and source, and what works."""
    refusing = found.refusing
    lines = [f"rule {one.rule}: {one.because} (source: {one.source}; {one.where})" for one in refusing]
    rules = " ".join(f"--allow {one.rule}" for one in refusing)
    close = refusing[0].nearest
    hints = [one.advice for one in refusing if one.advice]
    hints.append(
        f"the nearest combination that no rule refuses is {close}" if close else "nothing listed is near"
    )
    hints.append(f"to build it all the same: {rules}")
    return BadInputError(
        f"{found.name} does not work{_for_archs(found.facts.archs)}",
        where=found.asked,
        why="\n".join(lines),
        hint="; ".join(hints),
    )


def _for_archs(archs: Sequence[str]) -> str:
    return f" for {', '.join(archs)}" if archs else ""


def _known_rules(allow: Sequence[str], catalog: RecipeCatalog) -> None:
    for rule in allow:
        if rule not in catalog.rules:
            hint = did_you_mean(rule, catalog.rules) or f"rules: {', '.join(sorted(catalog.rules))}"
            raise UsageError(f"no rule is called `{rule}`", where="--allow", hint=hint)


def _known_archs(archs: Sequence[str], combination: Combination, catalog: RecipeCatalog) -> tuple[str, ...]:
    """The archs asked for; raises UsageError for one that no stack of this vendor has ever had."""
    vendor = combination.stack.stack.vendor
    known = {
        arch
        for stack in catalog.stacks.values()
        if stack.stack.vendor == vendor
        for entry in stack.rows
        for arch in (*entry.row.archs, *entry.row.arch_aliases)
    }
    for arch in archs:
        if arch not in known:
            hint = did_you_mean(arch, known) or f"archs: {', '.join(sorted(known)) or 'none'}"
            raise UsageError(f"no arch of this stack's devices is called `{arch}`", where="--arch", hint=hint)
    return tuple(dict.fromkeys(archs))


def _findings(
    combination: Combination,
    asked: tuple[str, ...],
    facts: Facts,
    catalog: RecipeCatalog,
    allow: frozenset[str],
) -> tuple[RuleHit, ...]:
    found = judge(facts, catalog)
    if not any(_refuses(one, allow) for one in found):
        return tuple(_finding(one, "") for one in found)
    close = nearest(combination, asked, catalog, allow)
    return tuple(_finding(one, close.name if close and _refuses(one, allow) else "") for one in found)


def _refuses(entry: Entry[Rule], allow: frozenset[str]) -> bool:
    return entry.row.verdict == "refuse" and entry.row.id not in allow


def _finding(entry: Entry[Rule], close: str) -> RuleHit:
    rule = entry.row
    return RuleHit(rule.id, rule.verdict, rule.because, rule.source, close, rule.advice or "", entry.where)


def _with_automatic(
    combination: Combination, facts: Facts, catalog: RecipeCatalog
) -> tuple[Combination, list[tuple[str, str]]]:
    """Add what no one names and the image needs: the compiler's own Python where the base has none."""
    added = []
    for name, component in catalog.components.items():
        if not any(holds(one, facts) for one in component.component.automatic):
            continue
        entry = [one for one in component.releases if one.row.shape is None][-1]
        combination = combination.with_part(ChosenComponent(name, entry.row.version, entry))
        added.append((f"{name}-{entry.row.version}", f"added by itself: {component.component.title}"))
    return combination, added


def _values(facts: Facts, combination: Combination, system: System) -> dict[str, str]:
    """What placeholders of layers stand for."""
    named = {f"{name}.version": version for name, version in facts.provides.items()}
    named |= {f"{name}.prefix": prefix for name, prefix in facts.prefixes.items()}
    first = {"arch": facts.archs[0], "archs": ",".join(facts.archs)} if facts.archs else {}
    return {
        **named,
        **first,
        "system": f"{system.system}-{system.version}",
        "codename": system.codename,
        **combination.base.parameters,
    }


def _component(
    kind: str, version: str, entry: Entry[Any], facts: Facts, values: Mapping[str, str]
) -> Component:
    layer = layer_of(entry.content, facts, values, entry.where)
    build = build_of(entry.content, facts, values, entry.where)
    return Component(kind, version, entry.row, layer, build, entry.where)


def _substitutes(base: Base, layer: Layer, facts: Facts) -> Iterator[Substitute]:
    for one in base.fallbacks:
        own = {"reference": one.reference, "digest": one.digest, "source": one.source, "fallbacks": ()}
        yield Substitute(base.model_copy(update=own), with_layers(layer, one.install, facts))


def _choices(combination: Combination, facts: Facts, asked: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    row, base = combination.row, combination.base
    why = "the only base listed" if len(row.bases) == 1 else "the first base listed"
    if base is not row.bases[0]:
        why = "the base asked for"
    yield base.reference, f"{why}, {base.system}, digest {base.digest} (source: {base.source})"
    for fallback in base.fallbacks:
        why = f"a fallback: locking takes it when the registry no longer has {base.reference}"
        yield fallback.reference, f"{why} (source: {fallback.source})"
    if facts.archs:
        yield ", ".join(facts.archs), _why_archs(combination, facts, asked)
    for what in ("python", "cmake", "gcc"):
        if what in facts.provides:
            yield f"{what} {facts.provides[what]}", "the base's own"


def _why_archs(combination: Combination, facts: Facts, asked: tuple[str, ...]) -> str:
    baked = [one.name for one in combination.parts if one.entry.row.bakes_arch]
    identity = f"built into {', '.join(baked)}" if baked else "chosen at compile time, not part of the image"
    if not asked:
        return f"the default of this version; {identity}"
    aliases = [
        f"{old} is compiled as {new}"
        for old, new in combination.row.arch_aliases.items()
        if old in facts.asked
    ]
    environment = combination.environment
    own = environment is not None and asked == environment.archs
    return "; ".join(["the environment's own" if own else "asked for", *aliases, identity])


def _hash(
    combination: Combination,
    system: System,
    layer: Layer,
    components: Iterable[Component],
    archs: Sequence[str],
) -> str:
    decisive = {
        "name": combination.name,
        "base": [
            combination.base.reference,
            combination.base.digest,
            *(_decisive(one) for one in combination.base.fallbacks),
        ],
        "system": [system.system, system.version, system.family, system.codename, _decisive(layer)],
        "components": [
            [one.kind, one.version, _decisive(one.layer), _decisive(one.build) if one.build else None]
            for one in components
        ],
        "archs": list(archs),
    }
    return hashlib.sha256(json.dumps(decisive, sort_keys=True).encode()).hexdigest()


def _decisive(model: BaseModel) -> Any:
    def strip(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: strip(one) for key, one in value.items() if key not in _EXPLAINS}
        return [strip(one) for one in value] if isinstance(value, (list, tuple)) else value

    return strip(model.model_dump(mode="json"))
