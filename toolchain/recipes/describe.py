"""Recipes and resolutions as text and as JSON, for `tk image list`, `show` and `why`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from toolchain.recipes.evidence import Evidence, states
from toolchain.recipes.names import stack_name
from toolchain.recipes.resolve import (
    Component,
    Examination,
    RecipeCatalog,
    Resolution,
    RuleHit,
    examine,
    resolve,
)
from toolchain.recipes.schema import AptRepository, Build, Environment, Layer, Licence, Model

_WIDTH = 20


@dataclass(frozen=True, slots=True)
class Listed:
    """One line of the list: an image by name, what it is, and what was shown of it."""

    name: str
    title: str
    kind: str
    stands_for: str
    base: str
    archs: tuple[str, ...]
    findings: tuple[str, ...]
    states: dict[str, str]


def list_recipes(catalog: RecipeCatalog, records: Sequence[Evidence]) -> list[Listed]:
    """Every version of every stack, then the environments."""
    names = [stack_name(stack, one.row.version) for stack in catalog.stacks.values() for one in stack.rows]
    return [_listed(name, "stack", catalog, records) for name in names] + [
        _listed(name, "environment", catalog, records) for name in catalog.environments
    ]


def _listed(name: str, kind: str, catalog: RecipeCatalog, records: Sequence[Evidence]) -> Listed:
    found = examine(name, catalog)
    whole = found.combination
    recipe_hash = "" if found.refusing else resolve(name, catalog).recipe_hash
    title = whole.environment.title if whole.environment else whole.stack.stack.title
    return Listed(
        name=name,
        title=title,
        kind=kind,
        stands_for=found.name,
        base=whole.base.reference,
        archs=found.facts.archs,
        findings=tuple(f"{one.verdict} {one.rule}" for one in found.findings),
        states={str(key): value for key, value in states((name, found.name), recipe_hash, records).items()},
    )


def list_components(catalog: RecipeCatalog) -> list[dict[str, Any]]:
    """Every component with its releases, oldest first."""
    return [
        {
            "name": name,
            "title": component.component.title,
            "automatic": bool(component.component.automatic),
            "releases": [one.row.version for one in component.releases],
        }
        for name, component in catalog.components.items()
    ]


def show_json(found: Resolution) -> dict[str, Any]:
    """Everything about a resolution."""
    return {
        "asked": found.asked,
        "name": found.name,
        "title": found.title,
        "vendor": found.vendor,
        "recipe_hash": found.recipe_hash,
        "base": _plain(found.base),
        "system": {**_plain(found.system), "install": _plain(found.system_layer)},
        "archs": list(found.archs),
        "provides": dict(found.provides),
        "prefixes": dict(found.prefixes),
        "added": found.additions.label,
        "stack": _component_json(found.stack),
        "components": [_component_json(one) for one in found.components],
        "findings": [finding_json(one) for one in found.findings],
        "allowed": list(found.allowed),
        "unresolved": list(dict.fromkeys(unresolved(found))),
        "differences": _differences(found.environment),
    }


def why_json(found: Examination) -> dict[str, Any]:
    """The choices and findings of an examination."""
    return {
        "asked": found.asked,
        "name": found.name,
        "archs": list(found.facts.archs),
        "refused": bool(found.refusing),
        "choices": [{"choice": choice, "because": because} for choice, because in found.choices],
        "findings": [finding_json(one) for one in found.findings],
        "allowed": list(found.allowed),
        "rows": [{"name": name, "where": where} for name, where in _rows(found)],
        "differences": _differences(found.combination.environment),
    }


def _differences(environment: Environment | None) -> list[Any]:
    return [_plain(one) for one in environment.differences] if environment else []


def finding_json(finding: RuleHit) -> dict[str, str]:
    """One finding."""
    return {
        "rule": finding.rule,
        "verdict": finding.verdict,
        "because": finding.because,
        "source": finding.source,
        "where": finding.where,
        "nearest": finding.nearest,
        "advice": finding.advice,
    }


def why_text(found: Examination) -> str:
    """What was chosen and why, what each rule says, and what works instead."""
    lines = [found.name, "", "choices"]
    lines += [f"  {choice}: {because}" for choice, because in found.choices]
    lines += ["", "recipes"]
    lines += [f"  {name}: {where}" for name, where in _rows(found)]
    lines += ["", "rules"]
    for one in found.findings:
        lines.append(f"  {_verdict(one, found)} {one.rule}: {one.because}")
        lines.append(f"    source: {one.source} ({one.where})")
        lines += [f"    advice: {one.advice}"] if one.advice else []
    if not found.findings:
        lines.append("  none has anything to say")
    if found.refusing:
        close = found.refusing[0].nearest or "none listed"
        lines += ["", f"nearest that no rule refuses: {close}"]
    return "\n".join([*lines, *_difference_lines(found.combination.environment)])


def _verdict(finding: RuleHit, found: Examination) -> str:
    return f"{finding.verdict} (allowed)" if finding.rule in found.allowed else finding.verdict


def _rows(found: Examination) -> Iterator[tuple[str, str]]:
    whole = found.combination
    yield stack_name(whole.stack, whole.row.version), whole.entry.where
    yield from ((f"{one.name}-{one.version}", one.entry.where) for one in whole.parts)


def show_text(found: Resolution) -> str:
    """A resolution for people: what is in the image and where each part comes from."""
    lines = [f"{found.name}  {found.title}", ""]
    lines += _pairs(
        ("base", f"{found.base.reference}, digest {found.base.digest}"),
        ("system", f"{found.system.system} {found.system.version}"),
        ("archs", ", ".join(found.archs)),
        ("provides", _joined(found.provides)),
        ("prefixes", _joined(found.prefixes)),
        ("added", found.additions.label),
        ("recipe", found.recipe_hash),
    )
    lines += ["", "system", *_layer_lines(found.system_layer)]
    for one in (found.stack, *found.components):
        lines += ["", f"{one.kind} {one.version}  {one.where}", *_component_lines(one)]
    if found.findings:
        lines += ["", "rules"]
        lines += [f"  {one.verdict} {one.rule}: {one.because}" for one in found.findings]
    open_values = list(dict.fromkeys(unresolved(found)))
    if open_values:
        lines += ["", "unresolved until `tk image lock`"]
        lines += [f"  {one}" for one in open_values]
    return "\n".join([*lines, *_difference_lines(found.environment)])


def _difference_lines(environment: Environment | None) -> list[str]:
    """What is other than in the Dockerfile or the notes that an environment was made from, and why."""
    changes = environment.differences if environment else ()
    lines = ["", "differences from the original"] if changes else []
    for one in changes:
        lines += [f"  - before: {one.before}", f"    now: {one.now}", f"    because: {one.because}"]
    return lines


def unresolved(found: Resolution) -> Iterator[str]:
    """What a lock has to find out: digests, commits and checksums that no recipe states."""
    if found.base.digest == "unresolved":
        yield f"digest of {found.base.reference}"
    layers = [found.system_layer]
    for one in (found.stack, *found.components):
        layers.append(one.layer)
        if one.build is None:
            continue
        layers += one.build.layers
        if not _is_whole(one.build.git.commit):
            yield f"commit of {one.build.git.url} {one.build.git.ref}"
    for layer in layers:
        yield from (f"sha256 of {one.url}" for one in layer.downloads if one.sha256 == "unresolved")
        yield from (f"sha256 of {one.key}" for one in layer.repositories if not _is_known(one))


def _is_whole(commit: str) -> bool:
    return len(commit) == 40  # hex digits


def _is_known(repository: AptRepository) -> bool:
    return repository.key_fingerprint is not None or repository.key_sha256 != "unresolved"


def _component_lines(component: Component) -> Iterator[str]:
    row = component.row
    driver = getattr(row, "driver", None)
    yield from _pairs(("tier", getattr(row, "tier", "")))
    yield from _pairs(("host driver", f"{driver.minimum} or newer ({driver.source})" if driver else ""))
    yield from _pairs(("licence", _licence_text(row.licence)))
    sources = getattr(row, "sources", {}) or {"source": getattr(row, "source", "")}
    yield from _pairs(
        *((f"source of {key}" if key != "source" else key, text) for key, text in sources.items())
    )
    if component.build is not None:
        yield from _build_lines(component.build)
    yield from _layer_lines(component.layer)
    selector = getattr(row, "selector", None)
    if selector is not None:
        yield from _pairs(("device by", f"{selector.variable}: {_joined(selector.values)}"))
    yield from _pairs(*(("note", one) for one in row.notes))


def _licence_text(licence: Licence | None) -> str:
    if licence is None:
        return "none stated: private registries only"
    kept = "" if licence.redistributable else "; private registries only"
    return f"{licence.name}{kept} ({licence.source})"


def _build_lines(build: Build) -> Iterator[str]:
    yield from _pairs(
        ("sources", f"{build.git.url} {build.git.ref}, commit {build.git.commit} ({build.git.source})"),
        ("configure", " ".join(word for one in build.configure for word in one.words)),
        ("build", " ".join(word for one in build.compile for word in one.words)),
        ("prefix", build.prefix),
        ("needs", ", ".join(name for one in build.layers for name in (*one.apt, *one.pip))),
    )


def _layer_lines(layer: Layer) -> Iterator[str]:
    yield from _pairs(
        ("removed", ", ".join(layer.remove)),
        *(("repository", f"{one.name}: {one.uri} {' '.join(one.suites)}") for one in layer.repositories),
        *(
            (f"key of {one.name}", f"{one.key_fingerprint} ({one.key_source})")
            for one in layer.repositories
            if one.key_fingerprint
        ),
        ("packages", ", ".join((*layer.apt, *layer.rpm, *layer.pip))),
        *(("download", f"{one.url}, sha256 {one.sha256}") for one in layer.downloads),
        ("environment", _joined(layer.env, "=")),
        ("path", ":".join(layer.path)),
        ("libraries", ":".join(layer.libraries)),
        ("tests", ", ".join(one.name + (" (device)" if one.needs_device else "") for one in layer.smoke)),
    )


def _pairs(*pairs: tuple[str, str]) -> Iterator[str]:
    yield from (f"  {name:<{_WIDTH}}{text}" for name, text in pairs if text)


def _joined(mapping: Any, sign: str = " ") -> str:
    return ", ".join(f"{key}{sign}{value}" for key, value in mapping.items())


def _component_json(component: Component) -> dict[str, Any]:
    return {
        "kind": component.kind,
        "version": component.version,
        "where": component.where,
        "row": _plain(component.row),
        "layer": _plain(component.layer),
        "build": _plain(component.build) if component.build else None,
    }


def _plain(model: Model) -> Any:
    return model.model_dump(mode="json")
