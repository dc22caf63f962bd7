"""`tk image shell`: a shell in an image, in the current folder."""

from __future__ import annotations

from toolchain import options
from toolchain.commands.image import common, run

SHELL = ("/bin/sh", "-c", "command -v bash >/dev/null && exec bash; exec sh")


def shell_command(
    name: common.Name,
    devices: run.Devices = None,
    gpus: options.Gpus = None,
    allow_profiling: options.Profiling = False,
    allow_debugging: run.Debugging = False,
    no_seccomp: run.NoSeccomp = False,
    as_root: run.AsRoot = False,
    network: run.Network = "bridge",
    shm_size: run.ShmSize = None,
    no_folder: run.NoFolder = False,
    volume: run.Volumes = None,
    env: run.EnvVariables = None,
    publish: run.Ports = None,
    workdir: run.WorkDir = None,
    assume: options.Assume = None,
    explain: run.Explain = False,
    dry_run: run.DryRun = False,
    build: run.Build = False,
    trust_on_first_use: options.TrustOnFirstUse = False,
    docker_host: options.DockerHost = None,
    engine: options.EngineName = None,
    site: options.Site = None,
    arch: common.Archs = None,
    allow: common.Allow = None,
    with_apt: common.WithApt = None,
    with_pip: common.WithPip = None,
    with_file: common.WithFile = None,
    locked: options.Locked = False,
    frozen: options.Frozen = False,
    json: options.Json = False,
) -> None:
    """Open a shell in an image, as you, with the current folder at /work; its last status is tk's own."""
    run.run_command(
        name,
        list(SHELL),
        devices=devices,
        gpus=gpus,
        allow_profiling=allow_profiling,
        allow_debugging=allow_debugging,
        no_seccomp=no_seccomp,
        as_root=as_root,
        network=network,
        shm_size=shm_size,
        no_folder=no_folder,
        volume=volume,
        env=env,
        publish=publish,
        workdir=workdir,
        assume=assume,
        explain=explain,
        dry_run=dry_run,
        build=build,
        trust_on_first_use=trust_on_first_use,
        docker_host=docker_host,
        engine=engine,
        site=site,
        arch=arch,
        allow=allow,
        with_apt=with_apt,
        with_pip=with_pip,
        with_file=with_file,
        locked=locked,
        frozen=frozen,
        json=json,
    )
