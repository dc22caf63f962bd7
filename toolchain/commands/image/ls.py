"""`tk image ls`: the images that were built."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Annotated

import typer

from toolchain import console, options
from toolchain.commands.image import common, target

if TYPE_CHECKING:
    from toolchain.engine.store import StoredImage


def ls_command(
    untagged: Annotated[
        bool, typer.Option("--all", help="Also those whose name a later build took.")
    ] = False,
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """List the images that tk built on an engine, the newest first."""
    from toolchain.engine.store import list_images

    connected = target.connect(engine)
    images = list_images(connected, untagged=untagged)
    if json:
        console.data_json([{"state": one.state, **console.jsonable(one)} for one in images])
        return
    if not images:
        console.talk(f"no image of ours at {connected.endpoint}; `tk image build NAME` makes one")
    rows = [
        (
            _name(one),
            one.name,
            one.state,
            console.size(one.size),
            _date(one.created),
            one.plan[:12],
            one.stand_in,
        )
        for one in images
    ]
    console.data(console.table(("image", "recipe", "state", "size", "created", "plan", "base"), rows))


def _name(image: StoredImage) -> str:
    return ", ".join(image.references) or image.id.removeprefix("sha256:")[:12]


def _date(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).strftime("%Y-%m-%d %H:%M UTC")
