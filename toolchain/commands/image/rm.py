"""`tk image rm`: images that tk built."""

from __future__ import annotations

from typing import Annotated

import typer

from toolchain import console, options
from toolchain.commands.image import target


def rm_command(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="A recipe's name, a reference or an id; see ls.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Also when a container that has ended uses it.")
    ] = False,
    engine: options.EngineName = None,
    docker_host: options.DockerHost = None,
    json: options.Json = False,
) -> None:
    """Remove images that tk built; others are left alone, whatever they are called."""
    from toolchain.engine.store import remove_images

    connected = target.connect(docker_host, engine)
    images = {one.id: one for name in names for one in target.select(connected, name)}
    removed = remove_images(connected, images.values(), force=force)
    if json:
        console.data_json({"removed": removed})
    else:
        console.data("\n".join(removed))
