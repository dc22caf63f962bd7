"""`tk image push`: a built image to the team's registry."""

from __future__ import annotations

from toolchain import console, options
from toolchain.commands.image import common, target


def push_command(
    name: common.Name,
    registry: target.Registry = None,
    base: common.Base = None,
    engine: options.EngineName = None,
    docker_host: options.DockerHost = None,
    site: options.Site = None,
    arch: common.Archs = None,
    allow: common.Allow = None,
    locked: options.Locked = False,
    frozen: options.Frozen = False,
    json: options.Json = False,
) -> None:
    """Push a built image to a registry; its digest there goes to standard output.

    The image's section of tk.lock, where it has one, then names this image: build, pull and setup get it from
    there. Credentials are those of `docker login`.
    """
    from toolchain.engine.store import push_image, registry_reference
    from toolchain.images.lock import lock_path, record_build

    connected = target.connect(docker_host, engine)
    made = target.planned(
        name, site=site, archs=arch or (), allow=allow or (), base=base, locked=locked, frozen=frozen,
        ready=False,
    )  # fmt: skip
    where = target.registry_of(made.site, registry)
    target.built(connected, made.plan)
    reference = registry_reference(where, made.plan)
    with console.progress(f"pushing {reference}"):
        digest = push_image(connected, made.plan, where)
    lock = lock_path()
    in_lock = made.pins is not None
    if made.pins is not None and record_build(lock, made.plan, reference, digest):
        console.talk(f"{lock} names this image now: commit it")
    elif made.pins is None and lock.exists():
        console.talk(f"{lock} pins no {made.plan.section}, so it does not name this image")
    if json:
        console.data_json({"reference": reference, "digest": digest, "in_lock": in_lock})
    else:
        console.data(f"{reference}@{digest}")
