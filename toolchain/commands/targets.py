"""`tk targets`: what can be compiled for, and what this machine can compile, load and run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import compiler
from toolchain import console, options

Report = compiler.TargetReport

_QUESTIONS: tuple[tuple[str, str, Callable[[Report], compiler.Answer]], ...] = (
    ("compile", "is the toolchain here", lambda one: one.compiles),
    ("load", "is the driver or the runtime library here", lambda one: one.loads),
    ("run", "is there a device", lambda one: one.runs),
)


def targets_command(json: options.Json = False) -> None:
    """List the targets that `tk compile --target` accepts, and what this machine can do with each."""
    targets = compiler.list_targets()
    images = _images(targets)
    if json:
        console.data_json([{**console.jsonable(one), "image": images[one.name]} for one in targets])
        return
    header = ("target", "alias", "for", "arch", *(word for word, _, _ in _QUESTIONS), "image")
    rows = [
        (
            one.name,
            ", ".join(one.aliases),
            one.device,
            one.arch,
            *(ask(one).answer for _, _, ask in _QUESTIONS),
            images[one.name],
        )
        for one in targets
    ]
    console.data(console.table(header, rows))
    for word, asks, ask in _QUESTIONS:
        console.data(f"\n{word}: {asks}")
        for line in _reasons(targets, ask):
            console.data(console.wrapped(f"  {line}", " " * 12))


def _images(targets: Sequence[Report]) -> Mapping[str, str]:
    """The image that has the toolchain of each target, by the recipes; empty where none is listed."""
    from toolchain.recipes.catalog import load_catalog
    from toolchain.recipes.targets import image_for
    from toolchain.site import load_site

    catalog = load_catalog(load_site(None).recipe_folders)
    return {
        one.name: image_for(one.name, catalog).image if one.name in catalog.targets else "" for one in targets
    }


def _reasons(targets: Sequence[Report], ask: Callable[[Report], compiler.Answer]) -> list[str]:
    """Each reason once, with the targets that it is the reason of, and what helps."""
    found: dict[compiler.Answer, list[str]] = {}
    for one in targets:
        found.setdefault(ask(one), []).append(one.name)
    lines = []
    for answer, names in found.items():
        lines.append(f"{answer.answer:<9} {', '.join(names)}: {answer.reason}")
        if answer.fix:
            lines.append(f"{'':<9} fix: {answer.fix}")
    return lines
