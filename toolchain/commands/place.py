"""Where a command does its work: on this machine, or in a container of an image."""

from __future__ import annotations

import contextlib
import functools
import inspect
import shlex
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import compiler
from compiler import HostError, TkError, UsageError
from toolchain import console, options
from toolchain.commands.image import common
from toolchain.commands.several import Values, run_each

if TYPE_CHECKING:
    from toolchain.containers.place import Place

ImageName = Annotated[
    str | None,
    typer.Option("--image", metavar="NAME", help="Do it in a container of this image; see `tk image list`."),
]
BuildImage = Annotated[
    bool, typer.Option("--build", "--yes", "-y", help="Build the image first when it is missing; do not ask.")
]
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
    "trust_on_first_use": (options.TrustOnFirstUse, False),
    "no_container": (NoContainer, False),
    "docker_host": (options.DockerHost, None),
    "engine": (options.EngineName, None),
    "with_apt": (common.WithApt, None),
    "with_pip": (common.WithPip, None),
    "with_file": (common.WithFile, None),
    "site": (options.Site, None),
    "locked": (options.Locked, False),
    "frozen": (options.Frozen, False),
    "devices": (Devices, None),
    "gpus": (options.Gpus, None),
    "allow_profiling": (options.Profiling, False),
    "assume": (options.Assume, None),
    "explain": (Explain, False),
}
_OPTION_OF = {"gpus": "--gpu", "with_file": "--with"}
"""Options that are not called as their parameters."""
_HARMLESS = ("image", "no_container", "build", "trust_on_first_use", "explain")
"""What may be given where no container is needed: it says what is done if one is."""


def placeable(
    command: Callable[..., None], split: Callable[[Values], list[Values]] | None = None
) -> Callable[..., None]:
    """Give a command the options that say where it runs; in a container the bundled `tk` runs it.

    The command's own options go along, files as archives; see `containers/call.py`. `split` makes several
    calls of one, each with its own parameters.
    """

    @functools.wraps(command)
    def placed(context: typer.Context, **values: Any) -> None:
        place = {name: values.pop(name) for name in _PLACE}
        parts = [values] if split is None else split(values)

        def do(part: Values) -> None:
            changed = {name for name, value in part.items() if value is not values[name]}
            _run(command, context, part, changed, dict(place))

        if len(parts) == 1:
            do(parts[0])
        else:
            run_each(do, parts)

    _declare(placed, command)
    return placed


def _run(
    command: Callable[..., None], context: typer.Context, values: Values, changed: set[str], place: Values
) -> None:
    """One call, here or in a container; `changed` are parameters that do not come from the command line."""
    if not place["no_container"] and place["image"] is None:
        place["image"] = _image_instead(values, place)
    if place["image"] is None or place["no_container"]:
        _check_needless(place)
        if place["explain"]:
            _explain_here(context, values)
            return
        values = _for_this_machine(values)
        with _naming_the_image(values, place):
            command(**values)
        return
    from toolchain.containers.place import run_placed

    flags = {one.name: _flag(one) for one in context.command.params}
    given = {name: value for name, value in values.items() if name in changed or _was_given(context, name)}
    status = run_placed(str(context.info_name), _plain(given), flags, _place(place))
    if status:
        raise typer.Exit(status)


def _plain(values: Values) -> Values:
    """With the target as a text: by now there is one."""
    return {**values, "target": values["target"][0]} if values.get("target") else values


def _for_this_machine(values: Values) -> Values:
    """With the architecture of the device that is here, where a target is named without one."""
    if not values.get("target") or values["arch"]:
        return values
    arch = compiler.arch_here(_target(values))
    if arch:
        console.talk(f"compiling for {arch}, the architecture of the device here; --arch names others")
    return {**values, "arch": arch}


@contextlib.contextmanager
def _naming_the_image(values: Values, place: Values) -> Iterator[None]:
    """Where a toolchain is missing, let the error name the image that has it."""
    try:
        yield
    except HostError as error:
        target, arch = _target(values), values.get("arch")
        if "target" in values and not compiler.can_compile(target, arch):
            image = _image_of(target, arch, place["site"])
            given = ("--arch", arch) if arch else ()
            words = shlex.join(("tk", "compile", str(values["model"]), "--target", target, *given))
            hints = [
                error.hint,
                f"or compile in its image: `{words} --image {image} --build`" if image else "",
            ]
            hints.append("`--emit source` needs no toolchain")
            error.hint = "; ".join(filter(None, hints))
        raise


def _image_of(target: str, arch: str | None, site: Path | None) -> str:
    """The image that has a target's toolchain; empty where no recipe names one, or there are no recipes."""
    try:
        from toolchain.recipes.book import load_book
        from toolchain.recipes.targets import image_for
        from toolchain.site import load_site

        archs = tuple(arch.split(",")) if arch and target != compiler.DEFAULT_TARGET else ()
        return image_for(target, load_book(load_site(site).recipe_folders), archs=archs).image
    except (TkError, ModuleNotFoundError):
        return ""


def _target(values: Mapping[str, Any]) -> str:
    return str((values.get("target") or [compiler.DEFAULT_TARGET])[0])


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
        trust_first_use=values["trust_on_first_use"],
        docker_host=values["docker_host"],
        engine=values["engine"],
        site=values["site"],
        locked=values["locked"],
        frozen=values["frozen"],
        asked=Asked(tuple(values["devices"] or ("auto",)), wishes, values["assume"]),
        explain=values["explain"],
        additions=common.additions(values["with_apt"], values["with_pip"], values["with_file"]),
    )


def _image_instead(values: Values, place: Values) -> str | None:
    """The image that has what a target needs, when this machine has not and there is an engine."""
    if "target" not in values or values.get("emit") == "source":
        return None
    target = _target(values)
    if compiler.can_compile(target, values["arch"] or compiler.arch_here(target)):
        return None
    from toolchain.containers.place import image_of_target

    return image_of_target({**values, "target": target}, _place(place))


def _explain_here(context: typer.Context, values: Values) -> None:
    """Say that nothing is started: the command's own process does the work."""
    command = f"tk {context.info_name}"
    why = "no image was named with --image"
    if "target" in values:
        why = f"this machine has what target {_target(values)} needs"
        if not compiler.can_compile(_target(values), values["arch"] or None):
            why = "--no-container, or no recipe names an image"
    if values.get("json"):
        console.data_json({"job": None, "here": command, "why": why})
    else:
        console.data(f"{command} runs on this machine, in no container: {why}")


def _check_needless(place: dict[str, Any]) -> None:
    """Options that only a container understands are a mistake without one."""
    if place["image"] is not None:
        raise UsageError(
            "--image and --no-container exclude each other", where="--no-container", hint="drop one of them"
        )
    for name in _PLACE:
        if name not in _HARMLESS and place[name]:
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
