"""What a build will cost, as far as that is known before it begins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from toolchain import console
from toolchain.engine.progress import duration, step_times
from toolchain.engine.store import find_image, list_images

if TYPE_CHECKING:
    from toolchain.engine.client import Engine
    from toolchain.images.plan import Plan


def effort(engine: Engine, plan: Plan) -> str:
    """Time and size of building a plan with the components that are missing, from earlier builds, in words.

    What was never built with this engine, or never here, is said to be unknown.
    """
    seconds = 0.0
    unknown = []
    for one in _missing(engine, plan):
        known = step_times(one.name, f"auto {engine.endpoint.url}").known
        seconds += sum(known.values())
        unknown += [] if known else [one.name]
    sizes = [one.size for one in list_images(engine, untagged=True) if one.name == plan.name]
    size = console.size(sizes[0]) if sizes else "size unknown"
    if not unknown:
        return f"about {duration(seconds)} as last time, {size}"
    compiled = [need.name for need in plan.needs if need.name in unknown]
    if compiled:
        return f"{', '.join(compiled)} from source: hours, tens of GB while it is built"
    return f"never timed on this engine, {size}"


def _missing(engine: Engine, plan: Plan) -> Iterator[Plan]:
    if find_image(engine, plan) is not None:
        return
    for need in plan.needs:
        yield from _missing(engine, need)
    yield plan
