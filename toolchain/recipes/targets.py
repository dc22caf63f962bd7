"""The image that a compile target is built in, by target and archs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from compiler import BadInputError, UsageError, did_you_mean
from toolchain.recipes.catalog import Entry, RecipeCatalog
from toolchain.recipes.resolve import Examination, examine
from toolchain.recipes.schema import TargetImages


@dataclass(frozen=True, slots=True)
class TargetImage:
    """The image chosen for a target, the archs that it is asked to build, and why it was chosen."""

    target: str
    image: str
    archs: tuple[str, ...]
    because: str


def find_target(target: str, catalog: RecipeCatalog) -> Entry[TargetImages]:
    """What the recipes say of a target, by its name or an alias; raises UsageError for an unknown one."""
    aliases = {alias: one.row.target for one in catalog.targets.values() for alias in one.row.aliases}
    found = catalog.targets.get(aliases.get(target, target))
    if found is None:
        known = (*catalog.targets, *aliases)
        hint = did_you_mean(target, known) or f"targets: {', '.join(catalog.targets)}"
        raise UsageError(
            f"no image is listed for the target `{target}`", where="recipes/targets.yaml", hint=hint
        )
    return found


def image_for(
    target: str, catalog: RecipeCatalog, *, archs: Sequence[str] = (), allow: Sequence[str] = ()
) -> TargetImage:
    """Choose the first image of a target that no rule refuses for these archs (by default the target's).

    Raises UsageError for an unknown target or arch, BadInputError when no image has all the archs.
    """
    entry = find_target(target, catalog)
    target = entry.row.target
    wanted = tuple(archs) or entry.row.default_archs
    refused: list[str] = []
    for image in entry.row.images:
        found = examine(image, catalog, archs=wanted, allow=allow)
        if not found.refusing:
            return TargetImage(target, found.name, found.facts.archs, _because(entry.row.because, refused))
        refused.append(_reason(found))
    raise BadInputError(
        f"no image of the target `{target}` has {', '.join(wanted)}",
        where=entry.where,
        why="\n".join(refused),
        hint="name an image with --image, or fewer archs; `tk image show` lists those of an image",
    )


def _because(because: str, refused: Sequence[str]) -> str:
    return "; ".join([because, *refused])


def _reason(found: Examination) -> str:
    return f"not {found.name}: " + ", ".join(one.rule for one in found.refusing)
