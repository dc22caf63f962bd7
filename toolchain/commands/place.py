"""Where a command does its work: on this machine, or in a container of an image."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

import compiler
from compiler import UsageError
from toolchain import options

if TYPE_CHECKING:
    from toolchain.containers.place import Place

ImageName = Annotated[
    str | None,
    typer.Option("--image", metavar="NAME", help="Do it in a container of this image; see `tk image list`."),
]
BuildImage = Annotated[bool, typer.Option("--build", help="Build the image first when it is missing.")]
NoContainer = Annotated[
    bool, typer.Option("--no-container", help="Use this machine's own toolchain, whatever the target.")
]
Devices = Annotated[
    list[str] | None,
    typer.Option(
        "--devices",
        metavar="VENDOR",
        help="What a container gets: auto (what command and target need), none, nvidia, amd, hygon or intel; "
        "repeatable.",
    ),
]
Explain = Annotated[
    bool,
    typer.Option(
        "--explain", "--dry-run", help="Show every option of the container with its reason; run nothing."
    ),
]
_PLACE: dict[str, tuple[Any, Any]] = {
    "image": (ImageName, None),
    "build": (BuildImage, False),
    "no_container": (NoContainer, False),
    "docker_host": (options.DockerHost, None),
    "engine": (options.EngineName, None),
    "site": (options.Site, None),
    "locked": (options.Locked, False),
    "frozen": (options.Frozen, False),
    "devices": (Devices, None),
    "gpus": (options.Gpus, None),
    "allow_profiling": (options.Profiling, False),
    "assume": (options.Assume, None),
    "explain": (Explain, False),
}
_OPTION_OF = {"gpus": "--gpu"}
"""Options that are not called as their parameters."""


def placeable(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that say where it runs; in a container the bundled `tk` runs it.

    The command's own options go along, files as archives; see `containers/call.py`.
    """

    @functools.wraps(command)
    def placed(context: typer.Context, **values: Any) -> None:
        place = {name: values.pop(name) for name in _PLACE}
        if not place["no_container"] and place["image"] is None:
            place["image"] = _image_instead(values, place)
        if place["image"] is None or place["no_container"]:
            _check_needless(place)
            command(**values)
            return
        from toolchain.containers.place import run_placed

        flags = {one.name: _flag(one) for one in context.command.params}
        given = {name: value for name, value in values.items() if _was_given(context, name)}
        status = run_placed(str(context.info_name), given, flags, _place(place))
        if status:
            raise typer.Exit(status)

    _declare(placed, command)
    return placed


def _declare(placed: Callable[..., None], command: Callable[..., None]) -> None:
    """The signature that typer reads: the command's parameters, then those of the place."""
    hints = typing.get_type_hints(command, include_extras=True)
    own = [one.replace(annotation=hints[name]) for name, one in inspect.signature(command).parameters.items()]
    more = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)
        for name, (kind, default) in _PLACE.items()
    ]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    context = inspect.Parameter("context", kind, annotation=typer.Context)
    placed.__signature__ = inspect.Signature([context, *own, *more])  # type: ignore[attr-defined]
    placed.__annotations__ = {
        "context": typer.Context,
        **hints,
        **{name: kind for name, (kind, _) in _PLACE.items()},
    }


def _place(values: dict[str, Any]) -> Place:
    from toolchain.containers.needs import Asked
    from toolchain.containers.place import Place
    from toolchain.devices.privileges import Wishes

    wishes = Wishes(tuple(values["gpus"] or ()), values["allow_profiling"])
    return Place(
        image=values["image"],
        build=values["build"],
        docker_host=values["docker_host"],
        engine=values["engine"],
        site=values["site"],
        locked=values["locked"],
        frozen=values["frozen"],
        asked=Asked(tuple(values["devices"] or ("auto",)), wishes, values["assume"]),
        explain=values["explain"],
    )


def _image_instead(values: dict[str, Any], place: dict[str, Any]) -> str | None:
    """The image that has what a target needs, when this machine has not and there is an engine."""
    target = values.get("target")
    if target is None or compiler.can_compile(target, values.get("arch")):
        return None
    from toolchain.containers.place import image_of_target

    return image_of_target(values, _place(place))


def _check_needless(place: dict[str, Any]) -> None:
    """Options that only a container understands are a mistake without one."""
    if place["image"] is not None:
        raise UsageError(
            "--image and --no-container exclude each other", where="--no-container", hint="drop one of them"
        )
    for name in _PLACE:
        if name not in ("image", "no_container") and place[name]:
            option = _OPTION_OF.get(name, "--" + name.replace("_", "-"))
            raise UsageError(f"{option} has no use here", where=option, hint="it goes with --image NAME")


def _flag(parameter: Any) -> str:
    """The long option of a parameter; empty for an argument."""
    if parameter.param_type_name == "argument":
        return ""
    return str(max(parameter.opts, key=len))


def _was_given(context: typer.Context, name: str) -> bool:
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"
