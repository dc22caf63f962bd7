"""From a named image to one that is on the engine: locked, pulled or built, with what a person is asked.

Every command that can build does it here, so that each asks, says and explains the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolchain import console
from toolchain.engine.choice import AS_EVER, BuildOptions

if TYPE_CHECKING:
    from toolchain.engine.build import BuiltImage
    from toolchain.engine.client import Engine
    from toolchain.explain.issue import KnownIssue
    from toolchain.images.named import Named
    from toolchain.provision.locking import Trust


@dataclass(frozen=True, slots=True)
class Obtained:
    """An image that is there, and the name's plan with the pins that it was made from."""

    named: Named
    image: BuiltImage


def locked(engine: Engine, named: Named, *, trust_first_use: bool = False) -> Named:
    """The image with pins: where no lock has any that count, it is locked now, in one line.

    Raises HostError (where a server cannot be reached, with the way for a machine without internet),
    BuildError, and BadInputError for what nobody vouches for.
    """
    from toolchain.provision.section import lock_first

    with _way_without_internet(named):
        return lock_first(engine, named, trust=trusting(given=trust_first_use), say=console.talk)


def obtain(
    engine: Engine,
    named: Named,
    *,
    trust_first_use: bool = False,
    options: BuildOptions = AS_EVER,
) -> Obtained:
    """Make sure that the image is on the engine: locked first where no lock counts, then as `build_image`."""
    from toolchain.engine.build import build_image
    from toolchain.engine.progress import BuildDisplay

    made = locked(engine, named, trust_first_use=trust_first_use)
    plan, site = made.plan, made.site
    if options.network == "none":
        from toolchain.provision.cache_prefill import plan_offline

        plan, site = plan_offline(engine, plan, made.pins, site, say=console.talk)
    with _way_without_internet(named):
        image = build_image(
            engine, plan, site=site, progress=BuildDisplay, options=options,
            issues=known_issues(site.recipe_folders),
        )  # fmt: skip
    return Obtained(made, image)


def trusting(*, given: bool) -> Trust:
    """Whether parts that only their server vouches for are taken: by `--trust-on-first-use`, or a person."""

    def trust(parts: Sequence[str]) -> bool:
        for one in parts:
            console.talk(f"nobody but its server vouches for {one}")
        if given:
            console.talk("taken as they are now (--trust-on-first-use); the lock says so")
            return True
        return bool(console.ask("take what is there now, and note that in the lock?", default=False))

    return trust


def wants_build(engine: Engine, named: Named) -> bool:
    """Whether a person, asked on the terminal, wants the missing image built; False when there is nobody."""
    from toolchain.engine.effort import effort

    question = f"build the image {named.plan.section} ({effort(engine, named.plan)})?"
    return bool(console.ask(question, default=True))


def known_issues(folders: tuple[Path, ...]) -> Iterator[KnownIssue]:
    """Known issues of the recipes, read only when a failure is to be explained."""
    from toolchain.recipes.catalog import load_issues

    yield from load_issues(folders)


@contextlib.contextmanager
def _way_without_internet(named: Named) -> Iterator[None]:
    """Where a server cannot be reached, say how a bundle brings what it has."""
    from toolchain.web import UnreachableError

    try:
        yield
    except UnreachableError as error:
        bundle = (
            f"without internet: `tk image bundle export {named.plan.section} -o FILE` on a machine that"
            " has it, `tk image bundle import FILE` here, then `--network none`"
        )
        error.hint = "; ".join(filter(None, (error.hint, bundle)))
        raise
