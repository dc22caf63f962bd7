"""`tk image run`: a program in an image, with the least privileges that its accelerators need."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from compiler import ExitCode, TkError, UsageError
from toolchain import console, options
from toolchain.commands.image import common, target
from toolchain.containers.request import Request
from toolchain.devices.wishes import Extras, Wishes
from toolchain.engine.choice import EngineChoice

if TYPE_CHECKING:
    from toolchain.containers.launch import Launch

FAILED = 125
"""Exit status when tk itself fails, so that it is not taken for the program's (as `docker run` does it)."""

Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--devices",
        metavar="VENDOR",
        help="auto (the image's vendor, when there), none, nvidia, amd, hygon or intel; repeatable.",
    ),
]
Debugging = Annotated[bool, typer.Option("--allow-debugging", help="Debuggers may attach to processes.")]
NoSeccomp = Annotated[bool, typer.Option("--no-seccomp", help="No filter of system calls.")]
AsRoot = Annotated[
    bool, typer.Option("--as-root", help="As root of the container, still without capabilities.")
]
Network = Annotated[str, typer.Option("--network", metavar="KIND", help="bridge or none.")]
ShmSize = Annotated[
    str | None,
    typer.Option("--shm-size", metavar="SIZE", help="Shared memory, as 8g; default: the engine's."),
]
NoFolder = Annotated[bool, typer.Option("--no-folder", help="Do not mount the current folder at /work.")]
Volumes = Annotated[
    list[str] | None,
    typer.Option(
        "-v", "--volume", metavar="SRC:DST[:ro]", help="A folder of this machine, or a volume; repeatable."
    ),
]
EnvVariables = Annotated[
    list[str] | None,
    typer.Option(
        "-e", "--env", metavar="NAME[=VALUE]", help="A variable; without VALUE with ours; repeatable."
    ),
]
Ports = Annotated[
    list[str] | None,
    typer.Option(
        "-p",
        "--publish",
        metavar="[HOST:]PORT",
        help="A port, open to this machine; ADDRESS:HOST:PORT to others; repeatable.",
    ),
]
WorkDir = Annotated[
    str | None,
    typer.Option("--workdir", metavar="FOLDER", help="Where the program starts; default: /work."),
]
Explain = Annotated[
    bool, typer.Option("--explain", help="Show every option with its reason and source; run nothing.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the engine's own command line; run nothing.")]
Build = Annotated[bool, typer.Option("--build", help="Build the image first when it is missing.")]


def request_of(
    devices: Devices = None,
    gpus: options.Gpus = None,
    allow_profiling: options.Profiling = False,
    allow_debugging: Debugging = False,
    no_seccomp: NoSeccomp = False,
    as_root: AsRoot = False,
    network: Network = "bridge",
    shm_size: ShmSize = None,
    no_folder: NoFolder = False,
    volume: Volumes = None,
    env: EnvVariables = None,
    publish: Ports = None,
    workdir: WorkDir = None,
    assume: options.Assume = None,
    build: Build = False,
    trust_on_first_use: options.TrustOnFirstUse = False,
    selection: common.SelectedToRun = common.NO_SELECTION,
) -> Request:
    """What the options say of a container; its image and program come with the command."""
    return Request(
        devices=tuple(devices or ("auto",)),
        wishes=Wishes(tuple(gpus or ()), allow_profiling, allow_debugging, no_seccomp),
        network=network,
        shm_size=shm_size or "",
        folder=None if no_folder else Path.cwd(),
        assumed=assume,
        selection=selection,
        build=build,
        trust_first_use=trust_on_first_use,
        tty=os.isatty(0) and os.isatty(1),
        as_root=as_root,
        extras=Extras(tuple(volume or ()), tuple(env or ()), tuple(publish or ()), workdir or ""),
    )


BARE = Request()
Container = Annotated[Request, options.Depends(request_of)]


def image_run_command(
    name: common.Name,
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="The program and its arguments.")
    ] = None,
    container: Container = BARE,
    explain: Explain = False,
    dry_run: DryRun = False,
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """Run a program in an image; its exit status is tk's own, and 125 says that tk failed.

    The program runs as you, with the current folder at /work, and gets the accelerators of the image's
    vendor and nothing else of the machine. More only when asked for: --explain shows each option.
    """
    request = replace(container, image=name, argv=tuple(command or ()))
    if explain or dry_run:
        from toolchain.containers.launch import prepare

        shown = prepare(target.connect(engine), replace(request, build=False))
        show_launch(shown, explain=explain, json=json)
        return
    if not command:
        raise UsageError("no program to run", where="tk image run", hint=f"tk image run {name} -- COMMAND")
    if json:  # standard output is the program's
        raise UsageError("--json shows what would be run", where="--json", hint="add --explain or --dry-run")
    status = launch(request, engine)
    if status:
        raise typer.Exit(status)


def launch(request: Request, choice: EngineChoice) -> int:
    """Run what is requested on this terminal; its exit status."""
    from toolchain.containers.launch import prepare, start
    from toolchain.engine.store import sweep

    engine = target.connect(choice)
    sweep(engine)
    ready = prepare(engine, request)
    for note in ready.notes:
        console.warn(note)
    return start(engine, ready, tty=request.tty)


def show_launch(launch: Launch, *, explain: bool, json: bool) -> None:
    """Print the options with their reasons, or the command line."""
    from toolchain.devices.options import describe_options

    if json:
        console.data_json({"launch": launch, "command_line": launch.command_line()})
        return
    for note in launch.notes:
        console.warn(note)
    if not launch.is_built:
        console.warn(f"{launch.reference} is not built yet: `tk image build {launch.name}`")
    if not explain:
        console.data(launch.command_line())
        return
    console.data(f"image {launch.reference}")
    for line in describe_options(launch.options):
        console.data(line)
    console.data("never: --privileged, the host's network, more of /dev than these nodes")
    console.data(launch.command_line())


@contextlib.contextmanager
def failing() -> Iterator[None]:
    """Give errors of tk the exit status that no program under it has by chance."""
    try:
        yield
    except TkError as error:
        error.code = cast("ExitCode", FAILED)
        raise


def running_a_program(command: Callable[..., None]) -> Callable[..., None]:
    """The command with that status for its mistakes, too, unless the program is only shown."""

    @functools.wraps(command)
    def running(**values: Any) -> None:
        with contextlib.nullcontext() if values["explain"] or values["dry_run"] else failing():
            command(**values)

    return running
