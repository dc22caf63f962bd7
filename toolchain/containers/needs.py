"""Which accelerators a job needs, and the least that gives them: from command, target and machine.

A library runs on the accelerators of its target's vendor, which `recipes/targets.yaml` names. A compile needs
none; where there is one it may be asked for its architecture, which `tk` finds out by itself, or for code
that only its driver makes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from compiler import EMULATORS, BadInputError, HostError, UsageError, manifest_of
from toolchain import options
from toolchain.containers.request import Asked
from toolchain.devices.arch import VENDORS, Vendor
from toolchain.devices.detect import Device, Inventory
from toolchain.devices.host_facts import Caller, EngineFacts
from toolchain.devices.options import RunOption
from toolchain.devices.privileges import (
    PRODUCTS,
    chosen_devices,
    find_lacks,
    named_vendors,
    run_options,
    used_nodes,
)
from toolchain.devices.wishes import Wishes
from toolchain.recipes.catalog import RecipeCatalog
from toolchain.recipes.targets import find_target

_DRIVER_LIBRARIES: Mapping[Vendor, tuple[str, ...]] = {"nvidia": ("libcuda.so.1",)}
"""Of the host's driver, brought in by the engine's runtime; other vendors' are in their images."""
_COUNTERS = (
    "--allow-profiling adds nothing for {who}: Docker gives capabilities to root only; set `options nvidia"
    " NVreg_RestrictProfilingToAdminUsers=0` in the host's /etc/modprobe.d"
)


@dataclass(frozen=True, slots=True)
class Need:
    """Accelerators of a vendor that a job has a use for.

    because: in words for the user. required: without them there is no point in starting. wants_arch: their
    architecture decides what is compiled. archs: with other accelerators than of these there is no use for
    them; empty: any.
    """

    vendor: Vendor
    because: str
    required: bool = True
    wants_arch: bool = False
    wants_device: bool = True
    archs: tuple[str, ...] = ()


TUNE = "tune search"
"""The command that searches, in its group."""


@dataclass(frozen=True, slots=True)
class Given:
    """What a job gets: options, what must be usable inside then, architectures found, words to the user.

    Nothing must be usable for a need that is not required: the job does without what an engine passes over.
    """

    options: tuple[RunOption, ...] = ()
    present: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def needs_of(
    command: str, given: Mapping[str, Any], asked: Asked, catalog: RecipeCatalog
) -> tuple[Need, ...]:
    """What `tk command` with the parameters `given` needs.

    Raises UsageError for an unknown target or vendor, or options that have no use, and BadInputError for a
    file that is no model library.
    """
    named = named_vendors(asked.devices)
    if named is not None:
        needs = tuple(Need(one, f"--devices {one} asks for them") for one in named)
    elif command == "compile":
        needs = tuple(_needs_of_compile(given, catalog))
    elif command == "view":
        needs = tuple(_needs_of_view(given, catalog))
    elif command == TUNE:
        needs = tuple(_needs_of_tune(given, catalog))
    else:
        needs = tuple(_needs_of_library(given, catalog))
    if not needs:
        _check_needless(asked)
    return needs


def _check_needless(asked: Asked) -> None:
    for option, value in (
        ("--gpu", asked.wishes.numbers),
        ("--allow-profiling", asked.wishes.allow_profiling),
    ):
        if value:
            raise UsageError(
                f"{option} has no use here",
                where=option,
                why="what is asked for needs no accelerator",
                hint="name a vendor with --devices, or drop it",
            )


def _needs_of_compile(given: Mapping[str, Any], catalog: RecipeCatalog) -> Iterable[Need]:
    target = given.get("target")
    if target is None:  # the host's cores
        return
    row = find_target(str(target), catalog).row
    vendor, archs = _vendor(row.vendor), archs_of(given)
    wants_arch = "arch" in row.compile_asks and not archs
    if vendor is None or not (wants_arch or "binary" in row.compile_asks):
        return
    yield Need(
        vendor,
        f"a compile for {row.target} " + _uses(arch=wants_arch, binary="binary" in row.compile_asks),
        required=False,
        wants_arch=wants_arch,
        wants_device="binary" in row.compile_asks,
        archs=archs or (() if wants_arch else row.default_archs),
    )


def _needs_of_tune(given: Mapping[str, Any], catalog: RecipeCatalog) -> Iterable[Need]:
    """What a compile needs, and the accelerator that candidates are measured on."""
    needs = tuple(_needs_of_compile(given, catalog))
    if given.get("plan"):
        return needs
    wants_arch = any(one.wants_arch for one in needs)
    return (replace(one, wants_arch=wants_arch) for one in _measuring("a search", given, catalog))


def _measuring(what: str, given: Mapping[str, Any], catalog: RecipeCatalog) -> Iterable[Need]:
    """The accelerator of a target, whose kernels are measured; nothing for the host's cores."""
    target = given.get("target")
    if target is None:
        return
    row = find_target(str(target), catalog).row
    vendor = _vendor(row.vendor)
    if vendor is not None:
        yield Need(vendor, f"{what} for {row.target} measures kernels")


def _uses(*, arch: bool, binary: bool) -> str:
    uses = ["takes their architecture"] * arch + ["lets their driver make the final code"] * binary
    return " and ".join(uses)


def _needs_of_view(given: Mapping[str, Any], catalog: RecipeCatalog) -> Iterable[Need]:
    """What a compile needs; where a page has times, an accelerator that may be missing."""
    file = given.get("file")
    is_library = isinstance(file, Path) and options.is_library(options.existing_file(file))
    if is_library:
        needs = tuple(_needs_of_library({**given, "library": file}, catalog))
    else:
        needs = tuple(_needs_of_compile(given, catalog))
    measured = given.get("profile", True) and given.get("device") not in EMULATORS
    if not measured:
        return () if is_library else needs
    needs = needs or tuple(_measuring("a view", given, catalog))
    return tuple(replace(one, required=False, wants_device=True) for one in needs)


def _needs_of_library(given: Mapping[str, Any], catalog: RecipeCatalog) -> Iterable[Need]:
    library = given.get("library")
    if not isinstance(library, Path) or given.get("device") in EMULATORS:
        return
    target = manifest_of(options.existing_file(library)).get("target")
    if not isinstance(target, str):
        raise BadInputError(
            "the library does not say its target", where=str(library), hint="compile it again"
        )
    try:
        row = find_target(target, catalog).row
    except UsageError as error:
        raise BadInputError(
            f"the library is for the target `{target}`, of which the recipes know nothing",
            where=str(library),
            hint=f"{error.hint}; or say what it needs with --devices VENDOR or none",
        ) from error
    vendor = _vendor(row.vendor)
    if vendor is not None:
        yield Need(vendor, f"{library.name} is for {row.target}")


def _vendor(text: str) -> Vendor | None:
    return next((one for one in VENDORS if one == text), None)


def archs_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The architectures that `--arch` names, one by one."""
    value = given.get("arch") or ()
    texts = (value,) if isinstance(value, str) else value
    return tuple(part.strip() for text in texts for part in str(text).split(",") if part.strip())


def give(
    needs: Sequence[Need], inventory: Inventory, engine: EngineFacts, caller: Caller, wishes: Wishes
) -> Given:
    """The least that serves the needs on this machine.

    Raises HostError, with every fix at once, where something that is required cannot be used, and UsageError
    for a number that does not exist.
    """
    found: list[RunOption] = []
    present: list[str] = []
    archs: list[str] = []
    notes: list[str] = []
    for need in needs:
        one = _give(need, inventory, engine, caller, wishes)
        found += one.options
        present += one.present
        archs += one.archs
        notes += one.notes
    return Given(tuple(found), tuple(dict.fromkeys(present)), tuple(dict.fromkeys(archs)), tuple(notes))


def _give(need: Need, inventory: Inventory, engine: EngineFacts, caller: Caller, wishes: Wishes) -> Given:
    product = PRODUCTS[need.vendor]
    if not need.required and not inventory.of(need.vendor):
        return Given()
    devices = chosen_devices(inventory, need.vendor, wishes.numbers)
    archs = _archs(devices, wishes) if need.wants_arch and devices else ()
    if not need.wants_device or (need.archs and not {one.arch for one in devices} & set(need.archs)):
        return Given(archs=archs)
    lacks = find_lacks(inventory, need.vendor, engine, caller, devices)
    if lacks and not need.required:
        said = "; ".join(dict.fromkeys(f"{one.what} ({one.fix})" for one in lacks))
        return Given(archs=archs, notes=(f"compiling without the {product} accelerator: {said}",))
    try:
        chosen = run_options(inventory, need.vendor, engine, caller, wishes)
    except HostError as error:
        error.where = error.where or need.because
        raise
    libraries = _DRIVER_LIBRARIES.get(need.vendor, ())
    present = (*used_nodes(inventory, need.vendor, devices), *libraries)
    return Given(
        chosen,
        present if need.required else (),
        archs,
        tuple(_profiling_notes(chosen, engine, caller, wishes)),
    )


def _archs(devices: Sequence[Device], wishes: Wishes) -> tuple[str, ...]:
    """Architectures to compile for: of the accelerators that were numbered, else of the one used first.

    A processor's own GPU beside a real one is no reason to compile for both.
    """
    first = min(devices, key=lambda one: (one.index is None, one.index or 0))
    chosen = devices if wishes.numbers else (first,)
    return tuple(dict.fromkeys(one.arch for one in chosen if one.arch))


def _profiling_notes(
    chosen: Sequence[RunOption], engine: EngineFacts, caller: Caller, wishes: Wishes
) -> Iterable[str]:
    if not wishes.allow_profiling:
        return
    if not any(one.flag == "cap-add" for one in chosen):
        yield "--allow-profiling adds nothing: no driver there keeps counters for administrators"
    elif engine.kind == "docker" and caller.uid:
        yield _COUNTERS.format(who=f"user {caller.uid}")
