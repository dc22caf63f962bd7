"""`tk image rm`: images that tk built."""

from __future__ import annotations

from typing import Annotated

import typer

from toolchain import console, options
from toolchain.commands.image import common, removal, target


def rm_command(
    names: Annotated[
        list[str], typer.Argument(metavar="NAME...", help="A recipe's name, a reference or an id; see ls.")
    ],
    force: Annotated[
        bool, typer.Option("--force", help="Also when a container that has ended uses it.")
    ] = False,
    yes: removal.Yes = False,
    dry_run: removal.DryRun = False,
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """Remove images that tk built; others are left alone, whatever they are called.

    Asks first, and says which tk.lock an image stands in; where nobody can be asked, --yes is needed.
    """
    from toolchain.engine.store import list_images, remove_images

    connected = target.connect(engine)
    images = {one.id: one for name in names for one in target.select(connected, name)}
    wanted = removal.wanted_by_locks(list_images(connected, untagged=True))
    lines = removal.describe_images(images.values(), wanted)
    removed: list[str] = []
    if not dry_run and removal.confirmed(lines, yes=yes, command="rm"):
        removed = remove_images(connected, images.values(), force=force)
    if json:
        console.data_json({"removed": removed, **({"would_remove": lines} if dry_run else {})})
    else:
        for line in lines if dry_run else removed:
            console.data(line)
