"""`tk image sbom`: what is in a built image, as CycloneDX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from compiler import write_atomic
from toolchain import console, options
from toolchain.commands.image import common, target

Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write it there; default: standard output."),
]


def sbom_command(
    name: common.Name,
    output: Output = None,
    arch: common.Archs = None,
    allow: common.Allow = None,
    with_apt: common.WithApt = None,
    with_pip: common.WithPip = None,
    with_file: common.WithFile = None,
    base: common.Base = None,
    site: options.Site = None,
    docker_host: options.DockerHost = None,
    engine_name: options.EngineName = None,
) -> None:
    """Print the packages, downloads and sources of a built image as a CycloneDX document.

    Read back from the image once and kept in the user's state folder by the image's id.
    """
    from toolchain.engine.client import open_engine
    from toolchain.engine.endpoint import resolve_endpoint
    from toolchain.images.named import plan_named
    from toolchain.provision.inventory import read_inventory
    from toolchain.provision.sbom import sbom_text, store_sbom

    options.check_file(output)
    named = plan_named(
        name, site_file=site, archs=arch or (), allow=allow or (), base=base,
        additions=common.additions(with_apt, with_pip, with_file),
    )  # fmt: skip
    engine = open_engine(resolve_endpoint(docker_host, kind=engine_name), kind=engine_name)
    there = target.present(engine, named)
    inventory = read_inventory(engine, there.image.id, there.named.plan)
    store_sbom(inventory, there.named.plan)
    text = sbom_text(inventory, there.named.plan)
    if output is None:
        console.data(text.rstrip("\n"))
    else:
        write_atomic(output, text)
        console.data(str(output))
