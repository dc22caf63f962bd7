"""`tk image sbom`: what is in a built image, as CycloneDX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from compiler import write_atomic
from toolchain import console, options
from toolchain.commands.image import common, target


def sbom_command(
    name: common.Name,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Write it there; default: standard output."),
    ] = None,
    selection: common.SelectedUnlocked = common.NO_SELECTION,
    engine: common.Engine = common.ANY_ENGINE,
) -> None:
    """Print the packages, downloads and sources of a built image as a CycloneDX document.

    Read back from the image once and kept in the user's state folder by the image's id.
    """
    from toolchain.images.named import plan_named
    from toolchain.provision.inventory import read_inventory
    from toolchain.provision.sbom import sbom_text, store_sbom

    options.check_file(output)
    named = plan_named(name, selection)
    connected = target.connect(engine)
    there = target.present(connected, named)
    inventory = read_inventory(connected, there.image.id, there.named.plan)
    store_sbom(inventory, there.named.plan)
    text = sbom_text(inventory, there.named.plan)
    if output is None:
        console.data(text.rstrip("\n"))
    else:
        write_atomic(output, text)
        console.data(str(output))
