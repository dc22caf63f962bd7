"""What subcommands that need an engine have in common: the engine, the plan, the image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import TkError, UsageError, did_you_mean
from toolchain import console
from toolchain.progress import progress_bar

if TYPE_CHECKING:
    from toolchain.engine.choice import EngineChoice
    from toolchain.engine.client import Engine
    from toolchain.engine.store import StoredImage
    from toolchain.images.named import Named
    from toolchain.images.plan import Plan
    from toolchain.images.selection import Selection
    from toolchain.provision import publish
    from toolchain.provision.check import Report
    from toolchain.provision.present import Present
    from toolchain.site import SiteConfig

Registry = Annotated[
    str | None,
    typer.Option("--registry", metavar="HOST[/PATH]", help="The registry; default: the site's `registry`."),
]
Private = Annotated[
    bool,
    typer.Option("--private", help="Only those whom its owner lets in can pull from the registry."),
]


def connect(choice: EngineChoice) -> Engine:
    """The engine that the options name."""
    from toolchain.engine.client import open_chosen

    return open_chosen(choice)


def planned(name: str, selection: Selection, *, ready: bool = True, locks: bool = False) -> Named:
    """The plan of an image, as `plan_named`; says what was warned about."""
    from toolchain.images.named import plan_named

    named = plan_named(name, selection, ready=ready, locks=locks)
    for warning in named.warnings:
        console.warn(warning)
    return named


def planned_all(names: Iterable[str], selection: Selection, *, locks: bool = True) -> list[Named]:
    """The plans of all names, each once; raises the one error that there is, or all of them as one."""
    images: list[Named] = []
    errors: dict[str, TkError] = {}
    for name in dict.fromkeys(names):
        try:
            images.append(planned(name, selection, locks=locks))
        except TkError as error:
            errors[name] = error
    if not errors:
        return images
    first = next(iter(errors.values()))
    if len(errors) > 1:
        lines = [f"{name}: {'; '.join(filter(None, (one.what, one.hint)))}" for name, one in errors.items()]
        raise type(first)(f"{len(errors)} of the images cannot be made", why="\n".join(lines))
    raise first


def registry_of(site: SiteConfig, option: str | None) -> str:
    """The registry for push and pull; raises UsageError when none is named, or what is none."""
    from toolchain.site_schema import is_registry

    registry = (option or site.registry).rstrip("/")
    if registry and not is_registry(registry):
        raise UsageError(f"`{registry}` is no registry", where="--registry", hint="HOST[:PORT][/PATH]")
    if not registry:
        raise UsageError("no registry is named", hint="use --registry, or set `registry` in site.yaml")
    return registry


def push_target(site: SiteConfig, option: str | None, *, private: bool) -> publish.Registry:
    """The registry to push to; the site's word that its own is private holds for what lies below it, too.

    Raises UsageError when none is named, or what is none.
    """
    from toolchain.provision.publish import Registry

    where = registry_of(site, option)
    own = site.registry.rstrip("/")
    inside = not own or where == own or where.startswith(f"{own}/")
    return Registry(where, private or (site.registry_private and inside))


def present(engine: Engine, named: Named) -> Present:
    """The image that stands for a name; says when it is on a stand-in base. Raises HostError when none is."""
    from toolchain.provision.present import need_present

    found = need_present(engine, named)
    if found.note:
        console.warn(found.note)
    return found


def built(engine: Engine, plan: Plan) -> StoredImage:
    """The image of exactly this plan; raises HostError when it was not built on this engine."""
    from toolchain.engine.store import find_image
    from toolchain.provision.present import not_there

    found = find_image(engine, plan)
    if found is None:
        raise not_there(engine, plan)
    return found


def checked(engine: Engine, named: Named) -> Report:
    """What checking the image of exactly this plan finds; raises as `built`."""
    from toolchain.provision.check import check_image

    with progress_bar(f"checking {named.plan.reference}"):
        return check_image(engine, named.plan, named.pins, built(engine, named.plan))


def select(engine: Engine, name: str) -> list[StoredImage]:
    """Our images that `name` means: a reference, an id or its beginning, or a recipe's name.

    Raises UsageError when there is none.
    """
    from toolchain.engine.store import list_images

    images = list_images(engine, untagged=True)
    digits = name.removeprefix("sha256:")
    for found in (
        [one for one in images if name in one.references],
        [one for one in images if one.name == name and one.references],
        [one for one in images if len(digits) >= 6 and one.id.removeprefix("sha256:").startswith(digits)],
        [one for one in images if one.references and one.name == _canonical(name)],
    ):
        if found:
            return found
    known = [text for one in images for text in (*one.references, one.name)]
    raise UsageError(
        f"no image of ours is called `{name}`",
        where=str(engine.endpoint),
        hint=did_you_mean(name, known) or "`tk image ls` lists them",
    )


def _canonical(name: str) -> str:
    from toolchain.images.named import plan_named

    try:
        return plan_named(name).plan.name
    except UsageError:
        return ""
