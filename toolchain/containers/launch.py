"""From what was asked for to a container that can be started: image, engine, devices, options."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from compiler import HostError, UsageError
from toolchain.containers import host_probe
from toolchain.containers.host_probe import engine_facts
from toolchain.containers.request import Request
from toolchain.devices.arch import Vendor
from toolchain.devices.capabilities import keep_capabilities
from toolchain.devices.detect import Inventory, detect
from toolchain.devices.drivers import check_fit, vendor_of
from toolchain.devices.extras import extra_options
from toolchain.devices.host_facts import EngineFacts, this_caller
from toolchain.devices.options import RunOption, command_line, create_arguments
from toolchain.devices.privileges import (
    HOME,
    PRODUCTS,
    TEMPORARY,
    asked_options,
    base_options,
    named_vendors,
    run_options,
)
from toolchain.engine.client import Engine

if TYPE_CHECKING:
    from toolchain.images.named import Named

FOLDER = "/work"
"""Where the current folder is in a container."""
_PODMAN_CDI = (
    "podman's interface for programs passes over CDI devices (podman issue 22645): look for the GPU inside,"
    " or start the line that --dry-run prints"
)
NETWORKS = ("bridge", "none")


@dataclass(frozen=True, slots=True)
class Launch:
    """A container that can be started. `is_built`: the image is there; `notes`: what the user should know.

    `user` is who the program runs as in the end (`uid:gid`).
    """

    reference: str
    name: str
    is_built: bool
    argv: tuple[str, ...]
    options: tuple[RunOption, ...]
    notes: tuple[str, ...]
    engine: EngineFacts
    endpoint: str
    user: str

    def command_line(self) -> str:
        """The same for a shell, with the engine's own client."""
        return command_line(self.engine.kind, self.options, self.reference, self.argv, host=self.endpoint)


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The image: reference, canonical name, vendor, whether the engine has it."""

    reference: str
    name: str
    vendor: Vendor | None
    named: Named | None
    notes: tuple[str, ...]
    is_built: bool = True


def prepare(engine: Engine, request: Request) -> Launch:
    """Decide everything about a run; starts nothing but a build that was asked for and a remote probe.

    Raises UsageError for unknown names, BadInputError for what rules refuse, HostError for a host that does
    not fit.
    """
    named = _check_words(request)
    image = _choose(engine, request)
    facts = engine_facts(engine)
    caller = replace(this_caller(), uid=0, gid=0) if request.as_root else this_caller()
    wanted, inventory = _vendors(engine, request, image, named)
    notes = list(image.notes)
    options = list(base_options(facts, caller))
    if inventory is not None:
        for vendor in wanted:
            options += run_options(inventory, vendor, facts, caller, request.wishes)
        notes += _notes(inventory, image, wanted, request)
    options += asked_options(request.wishes)
    if facts.kind == "podman" and any(one.flag == "cdi" for one in options):
        notes.append(_PODMAN_CDI)
    user = next(one.value for one in options if one.flag == "user")
    given, words = keep_capabilities(options, facts, caller)
    options = [*given, *_surroundings(engine, request, notes)]
    return Launch(
        reference=image.reference,
        name=image.name,
        is_built=image.is_built,
        argv=(*words, *request.argv),
        options=tuple(options),
        notes=tuple(notes),
        engine=facts,
        endpoint="" if engine.endpoint.source == "the default" else engine.endpoint.url,
        user=user,
    )


def start(engine: Engine, launch: Launch, *, tty: bool) -> int:
    """Run it on this terminal and return the program's exit status; raises HostError."""
    from toolchain.engine.attach import ContainerUser, Streams, groups_of, run_attached

    if not launch.is_built:
        raise not_built(engine, launch.name)
    uid, _, gid = launch.user.partition(":")
    groups = groups_of(one.value for one in launch.options if one.flag == "group-add")
    return run_attached(
        engine,
        launch.reference,
        launch.argv,
        user=ContainerUser(int(uid), int(gid), groups, HOME),
        arguments=create_arguments(launch.options),
        streams=Streams(tty=tty),
    )


def not_built(engine: Engine, name: str) -> HostError:
    """There is no such image on the engine."""
    return HostError(
        f"the engine at {engine.endpoint} has no image of {name} as its recipe is now",
        hint=f"add --build, or build it first: `tk image build {name}`",
    )


def _check_words(request: Request) -> tuple[Vendor, ...] | None:
    """The vendors that are named; None for those of the image."""
    named = named_vendors(request.devices)
    if request.network not in NETWORKS:
        hint = "bridge (default) or none; the host's own network is never shared"
        raise UsageError(f"`{request.network}` is no choice", where="--network", hint=hint)
    if request.network == "none" and request.extras.publish:
        raise UsageError(
            "--publish has no use with --network none", where="--publish", hint="drop one of them"
        )
    return named


def _choose(engine: Engine, request: Request) -> _Chosen:
    """The image that a name stands for: as its recipe is now, else one of that name on a stand-in base."""
    if "/" in request.image or ":" in request.image:
        if engine.image(request.image) is None:
            raise HostError(f"the engine at {engine.endpoint} has no image {request.image}; pull or build it")
        return _Chosen(request.image, request.image, None, None, ())
    from toolchain.images.named import plan_named
    from toolchain.provision.obtain import obtain
    from toolchain.provision.present import find_present

    named = plan_named(request.image, request.selection, locks=request.build)
    plan, notes = named.plan, named.warnings
    vendor = vendor_of(plan.resolution) if plan.resolution is not None else None
    there = find_present(engine, named)
    if there is not None and (there.is_current or not request.build):
        said = (there.note,) if there.note else ()
        return _Chosen(there.reference, plan.name, vendor, named, (*notes, *said))
    if request.build:
        made = obtain(engine, named, trust_first_use=request.trust_first_use)
        return _Chosen(made.image.reference, plan.name, vendor, made.named, notes)
    return _Chosen(plan.reference, plan.name, vendor, named, notes, is_built=False)


def _vendors(
    engine: Engine, request: Request, image: _Chosen, named: tuple[Vendor, ...] | None
) -> tuple[Sequence[Vendor], Inventory | None]:
    """Whose accelerators are given, and what there is; nothing is looked at when none are wanted."""
    if named == () or (named is None and image.vendor is None):
        return (), None
    inventory = detect(host_probe.look(engine, image.reference if image.is_built else None, request.assumed))
    if named:
        return named, inventory
    here = image.vendor is not None and inventory.of(image.vendor)
    return ([image.vendor] if here and image.vendor else []), inventory


def _notes(inventory: Inventory, image: _Chosen, wanted: Sequence[Vendor], request: Request) -> Sequence[str]:
    notes = []
    if not wanted and image.vendor is not None:
        product = PRODUCTS[image.vendor]
        notes.append(f"{inventory.origin} has no {product} accelerator: {image.name} runs without one")
    if request.wishes.allow_profiling and not any(_is_restricted(inventory, one) for one in wanted):
        notes.append("--allow-profiling adds nothing: no driver here keeps counters for administrators")
    resolution = image.named.plan.resolution if image.named is not None else None
    if wanted and resolution is not None:
        notes += [
            f"{one.what}{f'; {one.fix}' if one.fix else ''}"
            for one in check_fit(inventory, resolution)
            if one.state != "ok"
        ]
    return notes


def _is_restricted(inventory: Inventory, vendor: Vendor) -> bool:
    return vendor == "nvidia" and inventory.profiling_is_restricted


def _surroundings(engine: Engine, request: Request, notes: list[str]) -> Sequence[RunOption]:
    options = []
    if request.network == "none":
        options.append(RunOption("network", "none", "asked for: no network"))
    if request.shm_size:
        options.append(RunOption("shm-size", request.shm_size, "asked for: shared memory between processes"))
    folder = request.folder
    if folder is not None and not engine.is_local:
        notes.append(
            f"the engine at {engine.endpoint.url} is elsewhere: the current folder is not in the container"
        )
    elif folder is not None:
        if ":" in str(folder):
            raise UsageError(
                "the current folder cannot be mounted",
                why=f"its name has a colon: {folder}",
                hint="--no-folder",
            )
        options.append(RunOption("mount", f"{folder}:{FOLDER}", "the current folder, to work in"))
    inside = request.extras.workdir or (FOLDER if folder is not None and engine.is_local else HOME)
    taken = [HOME, TEMPORARY, *(one.value.split(":")[1] for one in options if one.flag == "mount")]
    options += extra_options(request.extras, is_local=engine.is_local, taken=taken)
    options.append(RunOption("workdir", inside, "where the program starts"))
    options.append(RunOption("interactive", "", "standard input goes to the program"))
    if request.tty:
        options.append(RunOption("tty", "", "input and output are a terminal"))
    return options
