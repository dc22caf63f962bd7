"""`tk image push`: a built image to the team's registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolchain import console, options
from toolchain.commands.image import common, target
from toolchain.progress import progress_bar

if TYPE_CHECKING:
    from toolchain.engine.client import Engine
    from toolchain.images.named import Named
    from toolchain.provision.publish import Pushed, Registry


def push_command(
    name: common.Name,
    registry: target.Registry = None,
    private: target.Private = False,
    selection: common.Selected = common.NO_SELECTION,
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """Push a built image and its component images to a registry; its digest there goes to standard output.

    The image's section of tk.lock, where it has one, then names this image: build, pull and setup get it from
    there. Credentials are those of `docker login`. What may not be redistributed goes to a registry that is
    said to be private only.
    """
    from toolchain.provision.publish import refuse_unredistributable

    made = target.planned(name, selection, ready=False)
    where = target.push_target(made.site, registry, private=private)
    refuse_unredistributable([made.plan], where)
    connected = target.connect(engine)
    target.built(connected, made.plan)
    pushed = push_named(connected, made, where)
    if json:
        console.data_json({**console.jsonable(pushed), "in_lock": made.pins is not None})
    else:
        console.data(f"{pushed.reference}@{pushed.digest}")


def push_named(engine: Engine, made: Named, registry: Registry) -> Pushed:
    """Push an image that is on the engine, components first, and name it in the project's lock.

    `registry` is what `target.push_target` gives. Raises BadInputError for what may not go there, HostError
    when the registry or the engine refuses.
    """
    from toolchain.images.lock.pins import lock_path, record_build, user_lock
    from toolchain.provision.publish import push_plan

    pushed = push_plan(engine, made.plan, registry, progress_bar)
    lock = made.lock_file or lock_path()
    if made.pins is not None and record_build(lock, made.plan, pushed.reference, pushed.digest):
        console.talk(f"{lock} names this image now" + ("" if lock == user_lock() else ": commit it"))
    elif made.pins is None and lock.exists():
        console.talk(f"{lock} pins no {made.plan.section}, so it does not name this image")
    return pushed
