"""Where a command does its work: on this machine, or in a container of an image."""

from __future__ import annotations

import contextlib
import functools
import inspect
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

import compiler
from compiler import HostError, TkError, UsageError
from toolchain import console, options
from toolchain.commands.image import common
from toolchain.commands.multi_target import Values, run_each
from toolchain.containers.request import Asked, ContainerLimits, RunPlace, Word
from toolchain.devices.wishes import Wishes

_HARMLESS = ("image", "no_container", "build", "trust_on_first_use", "explain")
"""What may be given where no container is needed: it says what is done if one is."""


def place_of(
    image: Annotated[
        str | None,
        typer.Option(
            "--image", metavar="NAME", help="Do it in a container of this image; see `tk image list`."
        ),
    ] = None,
    build: Annotated[
        bool,
        typer.Option("--build", "--yes", "-y", help="Build the image first when it is missing; do not ask."),
    ] = False,
    trust_on_first_use: options.TrustOnFirstUse = False,
    no_container: Annotated[
        bool, typer.Option("--no-container", help="Use this machine's own toolchain, whatever the target.")
    ] = False,
    engine: common.Engine = common.ANY_ENGINE,
    selection: common.SelectedPlace = common.NO_SELECTION,
    devices: Annotated[
        list[str] | None,
        typer.Option(
            "--devices",
            metavar="VENDOR",
            help="What a container gets: auto (what command and target need), none, nvidia, amd, hygon or "
            "intel; repeatable.",
        ),
    ] = None,
    gpus: options.Gpus = None,
    allow_profiling: options.Profiling = False,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", help="What all in the container may hold, as `8 GB`."),
    ] = None,
    disk: Annotated[
        str | None,
        typer.Option("--disk", metavar="SIZE", help="What all in the container may have written, as `8 GB`."),
    ] = None,
    assume: options.Assume = None,
    explain: Annotated[
        bool,
        typer.Option(
            "--explain", "--dry-run", help="Show every option of the container with its reason; run nothing."
        ),
    ] = False,
) -> RunPlace:
    """What the options say of the place where a command runs."""
    asked = Asked(tuple(devices or ("auto",)), Wishes(tuple(gpus or ()), allow_profiling), assume)
    limits = ContainerLimits(
        memory=options.read_size(memory, "--memory") if memory else None,
        disk=options.read_size(disk, "--disk") if disk else None,
    )
    return RunPlace(
        image or "", build, trust_on_first_use, no_container, engine, selection, asked, explain, limits
    )


def placeable(
    command: Callable[..., None],
    split: Callable[[Values], list[Values]] | None = None,
    compiles: Callable[[Values], bool] = lambda values: values.get("emit") != "source",
) -> Callable[..., None]:
    """Give a command the options that say where it runs; in a container the bundled `tk` runs it.

    The command's own options go along, files as archives; see `containers/call.py`. `split` makes several
    calls of one, each with its own parameters; `compiles` tells which of those that have a target need its
    toolchain.
    """
    own = list(options.spread_parameters(command))
    ours = list(options.spread_parameters(place_of))
    roles = {one.name: options.metadata(one.annotation, options.Role) for one in own}

    @functools.wraps(command)
    def placed(context: typer.Context, **values: Any) -> None:
        call = _Call(command, context, roles, {one.name: values.pop(one.name) for one in ours}, compiles)
        parts = [values] if split is None else split(values)

        def do(part: Values) -> None:
            _run(call, part, [name for name, value in part.items() if value is not values[name]])

        if len(parts) == 1:
            do(parts[0])
        else:
            run_each(do, parts)

    first = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
    options.declare(placed, iter((first, *own, *ours)))
    return placed


@dataclass(frozen=True, slots=True)
class _Call:
    """A command as it was called, the roles of its own parameters, and the values of `place_of`'s."""

    command: Callable[..., None]
    context: typer.Context
    roles: Mapping[str, options.Role | None]
    place: Values
    compiles: Callable[[Values], bool]

    @property
    def name(self) -> str:
        """As it is called behind `tk`, its group first."""
        return self.context.command_path.partition(" ")[2]

    def words(self) -> dict[str, Word]:
        """How its parameters are said."""
        parameters = self.context.command.params
        return {
            str(one.name): Word(
                _option(one), self.roles.get(str(one.name)), next(iter(one.secondary_opts), "")
            )
            for one in parameters
        }

    def was_given(self, name: str) -> bool:
        """Whether a parameter stands on the command line."""
        source = self.context.get_parameter_source(name)
        return source is not None and source.name == "COMMANDLINE"


def _run(call: _Call, values: Values, changed: Sequence[str]) -> None:
    """One call, here or in a container; `changed` are parameters that do not come from the command line."""
    place = _place(call, values)
    if place is None:
        _check_needless(call)
        if call.place["explain"]:
            _explain_here(call.name, values)
            return
        values = _for_this_machine(values)
        with _naming_the_image(values, call.place["site"]):
            options.call_spread(call.command, values)
        return
    from toolchain.containers.place import run_placed

    given = {name: value for name, value in values.items() if name in changed or call.was_given(name)}
    status = run_placed(call.name, _plain(given), call.words(), place)
    if status:
        raise typer.Exit(status)


def _plain(values: Values) -> Values:
    """With the target as a text: by now there is one."""
    return {**values, "target": values["target"][0]} if values.get("target") else values


def _for_this_machine(values: Values) -> Values:
    """With the architecture of the device that is here, where a target is named without one."""
    if not values.get("target") or values["arch"] or values.get("cluster"):  # there it is another machine
        return values
    arch = compiler.arch_here(_target(values))
    if arch:
        console.talk(f"compiling for {arch}, the architecture of the device here; --arch names others")
    return {**values, "arch": arch}


@contextlib.contextmanager
def _naming_the_image(values: Values, site: Path | None) -> Iterator[None]:
    """Where a toolchain is missing, let the error name the image that has it."""
    try:
        yield
    except HostError as error:
        target, arch = _target(values), values.get("arch")
        if "target" in values and not compiler.can_compile(target, arch):
            image = _image_of(target, arch, site)
            given = ("--arch", arch) if arch else ()
            words = shlex.join(
                ("tk", "compile", str(values.get("model") or values["file"]), "--target", target, *given)
            )
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
        from toolchain.recipes.catalog import load_catalog
        from toolchain.recipes.targets import image_for
        from toolchain.site import load_site

        archs = tuple(arch.split(",")) if arch and target != compiler.DEFAULT_TARGET else ()
        return image_for(target, load_catalog(load_site(site).recipe_folders), archs=archs).image
    except (TkError, ModuleNotFoundError):
        return ""


def _target(values: Mapping[str, Any]) -> str:
    return str((values.get("target") or [compiler.DEFAULT_TARGET])[0])


def _place(call: _Call, values: Values) -> RunPlace | None:
    """The container where it runs: where one is asked for, or has what this machine lacks; None for here."""
    if call.place["no_container"] or not (
        call.place["image"] or (call.compiles(values) and _lacks_toolchain(values))
    ):
        return None
    place = options.call_spread(place_of, call.place)
    if place.image:
        return place
    from toolchain.containers.place import image_of_target

    image = image_of_target({**values, "target": _target(values)}, place)
    return replace(place, image=image) if image else None


def _lacks_toolchain(values: Values) -> bool:
    """Whether a command is to compile for a target that this machine has no toolchain for."""
    if "target" not in values:
        return False
    target = _target(values)
    return not compiler.can_compile(target, values["arch"] or compiler.arch_here(target))


def _explain_here(name: str, values: Values) -> None:
    """Say that nothing is started: the command's own process does the work."""
    command = f"tk {name}"
    why = "no image was named with --image"
    if "target" in values:
        why = f"this machine has what target {_target(values)} needs"
        if not compiler.can_compile(_target(values), values["arch"] or None):
            why = "--no-container, or no recipe names an image"
    if values.get("json"):
        console.data_json({"job": None, "here": command, "why": why})
    else:
        console.data(f"{command} runs on this machine, in no container: {why}")


def _check_needless(call: _Call) -> None:
    """Options that only a container understands are a mistake without one."""
    if call.place["image"]:
        raise UsageError(
            "--image and --no-container exclude each other", where="--no-container", hint="drop one of them"
        )
    ours = call.place.keys() - {*_HARMLESS}
    for parameter in call.context.command.params:
        if parameter.name in ours and call.was_given(parameter.name):
            option = _option(parameter)
            raise UsageError(f"{option} has no use here", where=option, hint="it goes with --image NAME")


def _option(parameter: Any) -> str:
    """The long option of a parameter; empty for an argument."""
    if parameter.param_type_name == "argument":
        return ""
    return str(max(parameter.opts, key=len))
