"""`tk image prune`: what no longer has a use."""

from __future__ import annotations

from typing import Annotated

import typer

from toolchain import console, options
from toolchain.commands.image import target


def prune_command(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List what would be removed.")] = False,
    engine: options.EngineName = None,
    docker_host: options.DockerHost = None,
    json: options.Json = False,
) -> None:
    """Remove superseded images, and what interrupted runs left: containers, volumes, layers.

    Of each recipe the newest image stays, and every image that a container uses.
    """
    from toolchain.engine.store import remove_images, remove_steps, sweep, unused_images, unused_steps

    connected = target.connect(docker_host, engine)
    unused, layers = unused_images(connected), unused_steps(connected)
    size = sum(one.size for one in unused)
    names = [name for one in unused for name in (one.references or (one.id,))]
    left: list[str] = []
    if not dry_run:
        left = sweep(connected)
        remove_images(connected, unused)
        remove_steps(connected, layers)
    if json:
        facts = {"images": names, "layers": layers, "left_behind": left, "bytes": size}
        console.data_json({**facts, "removed": not dry_run})
        return
    for name in (*names, *layers, *left):
        console.data(name)
    verb = "would be removed" if dry_run else "removed"
    console.talk(
        f"{len(names)} images {verb}, {console.size(size)} with what they share; {len(layers)} layers;"
        f" {len(left)} things of killed processes"
    )
