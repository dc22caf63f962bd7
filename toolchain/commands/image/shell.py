"""`tk image shell`: a shell in an image, in the current folder."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import typer

from toolchain import options
from toolchain.commands.image import common, run, target

SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")


def shell_command(
    name: common.Name,
    devices: run.Devices = None,
    gpus: run.Gpus = None,
    allow_profiling: run.Profiling = False,
    allow_debugging: run.Debugging = False,
    no_seccomp: run.NoSeccomp = False,
    as_root: run.AsRoot = False,
    network: run.Network = "bridge",
    shm_size: run.ShmSize = None,
    no_folder: run.NoFolder = False,
    assume: run.Assume = None,
    explain: run.Explain = False,
    dry_run: run.DryRun = False,
    build: run.Build = False,
    docker_host: options.DockerHost = None,
    engine: options.EngineName = None,
    site: options.Site = None,
    arch: common.Archs = None,
    allow: common.Allow = None,
    locked: target.Locked = False,
    frozen: target.Frozen = False,
    json: options.Json = False,
) -> None:
    """Open a shell in an image, as you, with the current folder at /work; its last status is tk's own."""
    from toolchain.devices.launch import Request
    from toolchain.devices.privileges import Wishes
    from toolchain.images.lock import lock_mode

    show = explain or dry_run
    with contextlib.nullcontext() if show else run.failing():
        request = Request(
            image=name,
            argv=SHELL,
            devices=tuple(devices or ("auto",)),
            wishes=Wishes(tuple(gpus or ()), allow_profiling, allow_debugging, no_seccomp),
            network=network,
            shm_size=shm_size or "",
            folder=None if no_folder else Path.cwd(),
            assumed=assume,
            site=site,
            archs=tuple(arch or ()),
            allow=tuple(allow or ()),
            lock=lock_mode(locked=locked, frozen=frozen),
            build=build and not show,
            tty=os.isatty(0) and os.isatty(1),
            as_root=as_root,
        )
        status = run.launch_or_show(request, docker_host, engine, explain=explain, show=show, json=json)
    if status:
        raise typer.Exit(status)
