"""Which image a lock takes as base: the recipe's, or a fallback when its registry says that it is gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from compiler import HostError
from toolchain.engine import store
from toolchain.images.plan import UNRESOLVED, Pins, Plan

if TYPE_CHECKING:
    from toolchain.engine.client import Engine
    from toolchain.site import SiteConfig

Say = Callable[[str], None]


def choose_base(engine: Engine, plan: Plan, site: SiteConfig, old: Pins, say: Say) -> tuple[str, str]:
    """The digest to be locked, and the fallback's reference; each is empty where nothing is locked.

    A stand-in has no digest, and one that the recipe says is not locked. `old` are pins that are kept. A
    fallback is taken only when the registry says that it has no such image, not when it cannot be asked.
    Raises HostError in that case, and when there is none of them.
    """
    if plan.base.stand_in:
        return "", ""
    if old.base_digest or old.base_reference:
        return old.base_digest, old.base_reference
    fallbacks = plan.resolution.fallbacks if plan.resolution else ()
    if not fallbacks and plan.base.digest != UNRESOLVED:
        return "", ""
    if found := _found(engine, site, plan.base.reference, plan.base.digest):
        return _locked(plan.base.digest, found), ""
    for one in fallbacks:
        if found := _found(engine, site, one.base.reference, one.base.digest):
            say(f"base {one.base.reference}: no registry has {plan.base.reference} any more")
            return _locked(one.base.digest, found), one.base.reference
    others = f", nor {', '.join(one.base.reference for one in fallbacks)}" if fallbacks else ""
    raise HostError(
        f"no registry says the digest of {plan.base.reference}{others}",
        hint="check the network, `docker login`, or name a mirror in site.yaml (`mirrors.registry`)",
    )


def _locked(own: str, found: str) -> str:
    return found if own == UNRESOLVED else ""


def _found(engine: Engine, site: SiteConfig, reference: str, digest: str) -> str:
    """The digest that an image has; empty when its registry says that there is none.

    Of one that cannot be asked for, it is the digest of the image as the engine once pulled it.
    """
    pinned = reference if digest == UNRESOLVED else f"{reference}@{digest}"
    asked = site.mirrored_image(pinned) or pinned
    if digest != UNRESOLVED and (engine.image(pinned) or engine.image(asked)):
        return digest
    try:
        return store.registry_digest(engine, asked) or _digest_here(engine, asked)
    except HostError:
        if here := _digest_here(engine, asked):
            return here
        raise


def _digest_here(engine: Engine, reference: str) -> str:
    repository = reference.partition("@")[0].rpartition(":")[0]
    names = map(str, (engine.image(reference) or {}).get("RepoDigests") or ())
    pairs = (name.rpartition("@") for name in names)
    return next((digest for name, _, digest in pairs if store.short(name) == store.short(repository)), "")
