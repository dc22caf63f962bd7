"""Which image on an engine stands for a name: one rule for every command that uses an image.

With `--base` it is the image on that very base. Without, it is the image of today's plan; where the engine
has none, the newest one of that name on a stand-in base, and its user is told. Such an image stands for the
same name on its own base, with the lock that counts there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from compiler import HostError
from toolchain.engine.client import Engine
from toolchain.engine.store import StoredImage, find_image, list_images
from toolchain.images.named import Named, plan_resolved
from toolchain.images.plan import Plan


@dataclass(frozen=True, slots=True)
class Present:
    """An image that is there, and the named plan that it is of; `note` says what its user should know.

    is_current: it was built from today's recipe and lock; a command that may build does so otherwise.
    """

    named: Named
    image: StoredImage
    note: str = ""
    is_current: bool = True

    @property
    def reference(self) -> str:
        """A name of the image."""
        return next(iter(self.image.references), self.image.id)


def find_present(engine: Engine, named: Named) -> Present | None:
    """The image that stands for a name, by the rule above; None when there is none."""
    found = find_image(engine, named.plan)
    if found is not None:
        return Present(named, found)
    if named.plan.base.stand_in:
        return None
    older: Present | None = None
    for here in _on_stand_ins(engine, named):
        exact = find_image(engine, here.named.plan)
        if exact is not None:
            return replace(here, image=exact)
        older = older or here
    if older is None:
        return None
    return replace(older, note=f"{older.note}, from another recipe or lock than today's", is_current=False)


def need_present(engine: Engine, named: Named) -> Present:
    """The same; raises HostError when there is none."""
    found = find_present(engine, named)
    if found is None:
        raise not_there(engine, named.plan)
    return found


def not_there(engine: Engine, plan: Plan) -> HostError:
    """The engine has no image of a plan."""
    return HostError(
        f"the engine at {engine.endpoint} has no image of {plan.name} as it is planned now",
        why=f"it would be called {plan.reference}",
        hint=f"`tk image build {plan.typed}` makes it; where a command has --build, that does, too",
    )


def _on_stand_ins(engine: Engine, named: Named) -> Iterator[Present]:
    """Images of the name that were built on stand-in bases, the newest first."""
    for image in list_images(engine):
        if image.name == named.plan.name and image.stand_in:
            note = f"{image.references[0]} was built on a stand-in: {image.stand_in}"
            yield Present(_on_base(named, image.stand_in), image, note)


def _on_base(named: Named, base: str) -> Named:
    """The same name planned on a stand-in base, with the lock that counts there."""
    again = plan_resolved(named.resolution, named.site, base, ready=False)
    return replace(again, warnings=named.warnings)
