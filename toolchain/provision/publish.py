"""Built images to a registry: what may go there, components first, and what is there then."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

from compiler import BadInputError
from toolchain.engine.client import Engine
from toolchain.engine.store import find_image, push_image, registry_reference
from toolchain.images.formats.bake import every_need
from toolchain.images.plan import Plan
from toolchain.recipes.licences import LicencedPart, kept_private, parts_of

Shown = Callable[[str], AbstractContextManager[object]]
"""Shows that something goes on, from its name, until its block ends."""


@dataclass(frozen=True, slots=True)
class Registry:
    """Where images go, as `host[:port][/path]`; `private`: not everybody can pull from it."""

    address: str
    private: bool = False


@dataclass(frozen=True, slots=True)
class Pushed:
    """An image in a registry; `components` are those of its component images that this engine had."""

    reference: str
    digest: str
    components: tuple[Pushed, ...] = ()


def refuse_unredistributable(plans: Iterable[Plan], registry: Registry) -> None:
    """Raise BadInputError that names every part which may go to a private registry only, with its licence."""
    if registry.private:
        return
    lines = [f"{plan.section}: {what}" for plan in plans for what in _private_parts(plan)]
    if not lines:
        return
    raise BadInputError(
        f"{registry.address} may be open to everybody, and not all of this may be passed on",
        where=registry.address,
        why="\n".join(dict.fromkeys(lines)),
        hint="if only those whom its owner lets in can pull from it, say so: --private, or"
        f" `registry: {{address: {registry.address}, private: true}}` in site.yaml;"
        " docs/licences.md lists all licences with their sources",
    )


def _private_parts(plan: Plan) -> Iterator[str]:
    parts: list[LicencedPart] = [] if plan.resolution is None else list(parts_of(plan.resolution))
    for one in kept_private(parts):
        yield f"{one.name} ({one.terms})"
    if plan.base.stand_in:
        yield f"{plan.base.reference}, which stands in for its base (no recipe states its licence)"


def push_plan(engine: Engine, plan: Plan, registry: Registry, shown: Shown = nullcontext) -> Pushed:
    """Push a built image to a registry, after those of its component images that are on the engine.

    Raises BadInputError for what may not go there, HostError when the registry or the engine refuses.
    """
    refuse_unredistributable([plan], registry)
    components = tuple(
        _pushed(engine, one, registry, shown)
        for one in every_need(plan)
        if find_image(engine, one) is not None
    )
    whole = _pushed(engine, plan, registry, shown)
    return Pushed(whole.reference, whole.digest, components)


def _pushed(engine: Engine, plan: Plan, registry: Registry, shown: Shown) -> Pushed:
    reference = registry_reference(registry.address, plan)
    with shown(f"pushing {reference}"):
        return Pushed(reference, push_image(engine, plan, registry.address))
