"""`tk tune worker` and `tk tune scheduler`: a cluster that builds and measures candidates."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import compiler
from toolchain import console, options

DeviceKey = Annotated[
    str | None,
    typer.Option(
        "--device-key",
        metavar="KEY",
        help="What the measured device is called in the cluster; default: the processor's name, and for a "
        "search the only device that there is.",
    ),
]


def tls_files(
    tls_ca_file: Annotated[
        Path | None,
        typer.Option("--tls-ca-file", metavar="FILE", help="PEM file of whom to believe, for tls://."),
        options.Role.HERE,
    ] = None,
    tls_cert: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="PEM file of the certificate to show."),
        options.Role.HERE,
    ] = None,
    tls_key: Annotated[
        Path | None,
        typer.Option("--tls-key", metavar="FILE", help="PEM file of its key, if that is another one."),
        options.Role.HERE,
    ] = None,
) -> compiler.TlsFiles:
    """The files of the encryption; what is left out comes from Dask's own configuration."""
    for path in filter(None, (tls_ca_file, tls_cert, tls_key)):
        options.existing_file(path)
    return compiler.TlsFiles(tls_ca_file, tls_cert, tls_key)


def worker_command(
    cluster: Annotated[
        str,
        typer.Option(
            "--cluster", metavar="URL", help="The scheduler: tcp://127.0.0.1:8786, or tls://HOST:PORT."
        ),
    ],
    *,
    build: Annotated[
        int, typer.Option("--build", metavar="N", min=0, help="Build so many candidates at a time.")
    ] = 0,
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure candidates on this machine, one at a time.")
    ] = False,
    device_key: DeviceKey = None,
    host: Annotated[
        str | None,
        typer.Option(
            "--host", metavar="ADDRESS", help="Where others reach this worker; default: this machine alone."
        ),
    ] = None,
    tls: Annotated[compiler.TlsFiles, options.Depends(tls_files)],
) -> None:
    """Build or measure candidates for searches on a cluster, until it is interrupted.

    Each candidate that is built at a time has a process, and measuring has one. A process that ends begins
    again, and a scheduler that is gone is waited for. Whoever may use the cluster may run code here: beyond
    this machine it has to be encrypted, with TLS.
    """
    address = compiler.ClusterAddress(cluster, tls)
    plan = compiler.WorkerPlan(address, build, measure, device_key or "", host or "")
    compiler.run_workers(plan, console.talk)


def scheduler_command(
    *,
    host: Annotated[
        str, typer.Option("--host", metavar="ADDRESS", help="Where to listen; default: this machine alone.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=0, max=65535, help="The port; 0 for any that is free.")
    ] = 8786,
    tls: Annotated[compiler.TlsFiles, options.Depends(tls_files)],
) -> None:
    """Be the scheduler of a cluster, until it is interrupted; its address is what it prints.

    A Dask scheduler without pages, which listens to this machine alone unless --host says otherwise; then it
    has to be encrypted, with TLS.
    """

    def announce(address: str) -> None:
        console.data(address)
        console.flush()

    compiler.serve_scheduler(compiler.SchedulerPlace(host, port, tls), announce)
