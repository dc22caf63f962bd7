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

    Credentials are those of `docker login`.
    """
    from toolchain.engine.store import push_image, registry_reference

    connected = target.connect(docker_host, engine)
    made = target.planned(
        name, site=site, archs=arch or (), allow=allow or (), base=base, locked=locked, frozen=frozen
    )
    where = target.registry_of(made.site, registry)
    target.built(connected, made.plan)
    reference = registry_reference(where, made.plan)
    with console.progress(f"pushing {reference}"):
        digest = push_image(connected, made.plan, where)
    if json:
        console.data_json({"reference": reference, "digest": digest})
    else:
        console.data(f"{reference}@{digest}")
