"""`tk image pull`: an image that somebody has pushed, by its digest when that is known."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from compiler import HostError, UsageError
from toolchain import console, options
from toolchain.commands.image import common, target

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def pull_command(
    name: common.Name,
    registry: target.Registry = None,
    digest: Annotated[
        str, typer.Option("--digest", metavar="sha256:...", help="Exactly this image; as `push` printed it.")
    ] = "",
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
    """Pull an image from a registry; refused when it was built from another plan than today's."""
    from toolchain.engine.store import pull_image, registry_reference

    if digest and not _DIGEST.fullmatch(digest):
        raise UsageError(f"`{digest}` is no digest", where="--digest", hint="sha256: and 64 hex digits")
    connected = target.connect(docker_host, engine)
    made = target.planned(
        name, site=site, archs=arch or (), allow=allow or (), base=base, locked=locked, frozen=frozen
    )
    where = target.registry_of(made.site, registry)
    with console.progress(f"pulling {registry_reference(where, made.plan)}"):
        found = pull_image(connected, made.plan, where, digest)
    if found is None:
        raise HostError(
            f"{where} has no {made.plan.reference}",
            hint=f"`tk image build {made.plan.name}` and `tk image push {made.plan.name}` put it there",
        )
    if json:
        console.data_json({"reference": made.plan.reference, "id": found.id})
    else:
        console.data(made.plan.reference)
