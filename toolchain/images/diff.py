"""What makes two images different: components, packages, environment, downloads and instructions."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from toolchain.images.formats.bake import every_need
from toolchain.images.plan import Download, Env, EnvPath, Plan
from toolchain.images.render import dockerfile

Kind = Literal[
    "base",
    "component",
    "arch",
    "apt",
    "pip",
    "download",
    "git",
    "environment",
    "smoke test",
    "instructions",
    "file",
]


@dataclass(frozen=True, slots=True)
class PlanChange:
    """One thing that differs: `before` is empty for what was added, `after` for what was removed.

    image: which image it is in: `image`, or the name of a component that is built. Instructions and files of
    the build context are given as the lines of a unified diff in `lines`.
    """

    kind: Kind
    image: str
    name: str
    before: str = ""
    after: str = ""
    lines: tuple[str, ...] = ()

    @property
    def change(self) -> str:
        """`added`, `removed` or `changed`."""
        if self.lines or (self.before and self.after):
            return "changed"
        return "added" if self.after else "removed"


def diff_plans(first: Plan, second: Plan) -> tuple[PlanChange, ...]:
    """All differences between two plans and their components; none when they have the same key."""
    if first.key == second.key:
        return ()
    pairs: dict[str, list[Plan | None]] = {"image": [first, second]}
    for side, plan in enumerate((first, second)):
        for need in every_need(plan):
            pairs.setdefault(need.repository.rpartition("/")[2], [None, None])[side] = need
    return tuple(one for image, (a, b) in pairs.items() for one in _differences(image, a, b))


def _differences(image: str, first: Plan | None, second: Plan | None) -> Iterator[PlanChange]:
    before, after = _facts(first), _facts(second)
    for kind in before:
        names = dict.fromkeys((*before[kind], *after[kind]))
        for name in names:
            old, new = before[kind].get(name, ""), after[kind].get(name, "")
            if old != new:
                yield PlanChange(kind, image, name, old, new)
    if first is None or second is None:
        return
    if lines := _lines(dockerfile(first), dockerfile(second)):
        yield PlanChange("instructions", image, "Dockerfile", lines=lines)
    for path in sorted({one.path for plan in (first, second) for one in plan.files}):
        texts = [_file(plan, path) for plan in (first, second)]
        if texts[0] != texts[1]:
            yield PlanChange("file", image, path, lines=_lines(*texts))


def _facts(plan: Plan | None) -> dict[Kind, Mapping[str, str]]:
    """What a plan names, by kind; the text of each name is what may have changed."""
    if plan is None:
        return {kind: {} for kind in _facts_kinds()}
    resolution = plan.resolution
    parts = (resolution.stack, *resolution.components) if resolution else ()
    return {
        "base": {plan.base.reference.partition(":")[0]: plan.base.pinned},
        "component": {one.kind: one.version for one in parts},
        "arch": {"archs": " ".join(resolution.archs)} if resolution else {},
        "apt": dict(_package(one) for one in plan.apt),
        "pip": dict(_package(one.replace("==", "=")) for one in plan.pip),
        "download": {one.path: f"{one.url} {_pin(one)}" for one in plan.downloads},
        "git": {one.url: f"{one.ref} {one.commit}" for one in plan.git},
        "environment": dict(_environment(plan)),
        "smoke test": {one.name: " ".join(one.argv) for one in plan.smoke},
    }


def _facts_kinds() -> tuple[Kind, ...]:
    return ("base", "component", "arch", "apt", "pip", "download", "git", "environment", "smoke test")


def _pin(one: Download) -> str:
    return f"key {one.fingerprint}" if one.fingerprint else f"sha256:{one.sha256}"


def _package(text: str) -> tuple[str, str]:
    name, _, version = text.partition("=")
    return name, version or "any version"


def _environment(plan: Plan) -> Iterator[tuple[str, str]]:
    for one in plan.stages[-1].instructions:
        if isinstance(one, Env):
            yield from one.pairs
        elif isinstance(one, EnvPath):
            yield one.name, ":".join((*one.entries, "..."))


def _file(plan: Plan, path: str) -> str:
    return next((one.data.decode(errors="replace") for one in plan.files if one.path == path), "")


def _lines(before: str, after: str) -> tuple[str, ...]:
    texts = before.splitlines(), after.splitlines()
    return tuple(difflib.unified_diff(*texts, "before", "after", lineterm="", n=1))
