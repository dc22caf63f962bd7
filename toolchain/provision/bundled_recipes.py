"""A site's own recipes that came in a bundle: into the project, where a build finds them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from compiler import TkError, write_atomic
from toolchain.provision.bundle import Bundle, section_of
from toolchain.site import FILE_NAME

FOLDER = "tk-recipes"
"""Where a project keeps recipes that were imported."""


@dataclass(frozen=True, slots=True)
class Recipes:
    """Whether a project's recipes make the bundle's plan, `problem` why not, and what was done for it.

    copied: folders that were copied into the project. written: the site file that names them, or None.
    lines: what to add to the site file that was there already; empty when nothing is missing.
    """

    fits: bool
    problem: str = ""
    copied: tuple[Path, ...] = ()
    written: Path | None = None
    lines: str = ""


def use_recipes(bundle: Bundle, project: Path) -> Recipes:
    """See to it that `project`, whose lock has the bundle's section, plans what the bundle was made for.

    Where its recipes do not do so already, the bundle's are copied into it, and named with the waived rules
    in a new `site.yaml`; one that is there is not touched.
    """
    problem = _difference(bundle)
    folders = _folders(bundle)
    if not problem or not (folders or bundle.manifest.allow):
        return Recipes(fits=not problem, problem=problem)
    own = [f"{FOLDER}/{bundle.manifest.plan[:12]}/{one.name}" for one in folders]
    for folder, name in zip(folders, own, strict=True):
        for path in sorted(folder.rglob("*.yaml")):
            write_atomic(project / name / path.relative_to(folder), path.read_bytes())
    lines = _lines("recipes", own) + _lines("allow", bundle.manifest.allow)
    copied = tuple(project / name for name in own)
    site = project / FILE_NAME
    if site.exists():
        return Recipes(fits=False, problem=problem, copied=copied, lines=lines)
    head = f"# Made by `tk image bundle import`: the recipes of {bundle.manifest.name}.\n"
    write_atomic(site, head + lines)
    problem = _difference(bundle)
    return Recipes(fits=not problem, problem=problem, copied=copied, written=site)


def _lines(key: str, values: list[str]) -> str:
    return "".join([f"{key}:\n", *(f"  - {one}\n" for one in values)]) if values else ""


def _folders(bundle: Bundle) -> list[Path]:
    found = [one for one in (bundle.folder / "recipes").glob("*") if one.is_dir()]
    return sorted(found, key=lambda one: one.name.zfill(4))


def _difference(bundle: Bundle) -> str:
    """Why the current folder's site, recipes and lock do not make the bundle's plan; empty when they do."""
    from toolchain.images.named import plan_named
    from toolchain.images.selection import Selection

    section = section_of(bundle)
    base = section.base if section.stand_in else None
    try:
        plan = plan_named(bundle.manifest.name, Selection(base=base, lock="locked"), ready=False).plan
    except TkError as error:
        return " ".join(str(error).split())
    if plan.key == bundle.manifest.plan:
        return ""
    return f"they make the plan {plan.key[:12]}, the bundle is for {bundle.manifest.plan[:12]}"
