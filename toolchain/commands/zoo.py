"""`tk zoo`: networks to compile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolchain import console, options
from toolchain import zoo as networks
from toolchain.progress import progress_bar

app = typer.Typer(help="Networks to try: list, make, fetch.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="A network; see `tk zoo list`.")]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Where to write; default: NAME.onnx, here."),
]


@app.command("list")
def zoo_list_command(json: options.Json = False) -> None:
    """List the networks."""
    records = [
        *networks.networks().values(),
        *networks.of_free_sizes().values(),
        *networks.exported().values(),
    ]
    if json:
        console.data_json(records)
        return
    rows = [
        (one.name, _inputs(one), one.gflop, one.parameters or None, _trained(one), one.source)
        for one in records
    ]
    console.data(console.table(("network", "input", "GFLOP", "parameters", "trained", "source"), rows))


@app.command("make")
def make_command(name: Name, output: Output = None, json: options.Json = False) -> None:
    """Write a network as ONNX with seeded random weights; the same bytes on every machine."""
    path = output or Path(f"{name}.onnx")
    networks.network(name)
    options.check_file(path)
    with progress_bar(f"making {name}", "bytes") as progress:
        record = networks.make(name, path, progress=progress)
    if json:
        console.data_json({"path": path, "network": record})
    else:
        console.data(str(path))


@app.command("fetch")
def fetch_command(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="A network, or a revision of its file; see `tk zoo list`.")
    ],
    output: Output = None,
    site: options.Site = None,
    json: options.Json = False,
) -> None:
    """Download a trained network from the ONNX model zoo and check its pinned sha256.

    NAME is a network, or one revision of the zoo's file for it, such as `mnist-1`; `tk zoo list` has them.
    """
    from toolchain.site import load_site

    path = output or Path(f"{name}.onnx")
    options.check_file(path)
    with progress_bar(f"fetching {name}", "bytes") as progress:
        fetched = networks.fetch(name, path, site=load_site(site), progress=progress)
    if not fetched.verified:
        console.warn(f"no sha256 is pinned for `{name}`: the file was not checked")
    if json:
        console.data_json(fetched)
    else:
        console.data(f"{fetched.path}  sha256 {fetched.sha256}")


def _trained(network: networks.Network) -> str:
    return ", ".join(one.name for one in network.originals) or "none known"


_SHOWN = 3
"""Inputs of a network in the table; those behind them are counted."""


def _inputs(network: networks.Network) -> str:
    shown = [f"{name} {console.shape(dims)}" for name, dims in network.inputs[:_SHOWN]]
    more = len(network.inputs) - len(shown)
    return ", ".join((*shown, f"{more} more") if more else shown)
