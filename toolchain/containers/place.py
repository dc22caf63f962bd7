"""Run a `tk` command in a container of an image: which image, what goes in, what comes out."""

from __future__ import annotations

import shlex
import sys
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler import (
    HostError,
    MemoryLimitError,
    UsageError,
    counted,
    private_directory,
    remove_abandoned_directories,
    replace_atomic,
)
from toolchain import console, options
from toolchain.advice import OF_PROGRAMS, advice_on
from toolchain.containers import host_probe
from toolchain.containers.call import Call, call_of
from toolchain.containers.host_probe import engine_facts
from toolchain.containers.job import Done, Job, job_options, run_job
from toolchain.containers.needs import TUNE, Given, Need, archs_of, give, needs_of
from toolchain.containers.probe import probe_image
from toolchain.containers.request import ContainerLimits, RunPlace, Word
from toolchain.containers.volumes import cache_name, compiler_name
from toolchain.devices.detect import detect
from toolchain.devices.host_facts import EngineFacts, this_caller
from toolchain.devices.options import describe_options
from toolchain.devices.sysroot import capture
from toolchain.engine.choice import ANY_ENGINE
from toolchain.engine.client import Engine, open_chosen
from toolchain.explain.causes import LAST_LINES
from toolchain.progress import progress_bar
from toolchain.site import load_site

if TYPE_CHECKING:
    from toolchain.images.named import Named


def image_of_target(values: Mapping[str, Any], place: RunPlace) -> str:
    """The recipe's name of the image that has a target's toolchain; empty without an engine.

    It has the architectures of `--arch`, else those of this machine's accelerators where the target takes
    them, else the target's own. Raises UsageError for a target without images, BadInputError when no image
    has all the architectures, HostError where an image was asked for and no engine answers.
    """
    from toolchain.recipes.catalog import load_catalog
    from toolchain.recipes.targets import find_target, image_for

    try:
        engine = open_chosen(place.engine)
    except HostError as error:
        if place.build or place.engine != ANY_ENGINE:
            error.why = f"{error.why}; and this machine itself has no toolchain for {values['target']}"
            raise
        if not place.explain:
            return ""
        engine = None
    catalog = load_catalog(load_site(place.selection.site).recipe_folders)
    target = str(values["target"])
    archs: tuple[str, ...] = ()
    if find_target(target, catalog).row.default_archs:
        archs = archs_of(values)
        if not archs and _is_here(engine, place):
            archs = _given(engine, None, needs_of("compile", values, place.asked, catalog), place).archs
    chosen = image_for(target, catalog, archs=archs)
    console.talk(f"this machine cannot build for {target}: using the image {chosen.image}")
    return chosen.image


def run_placed(command: str, given: Mapping[str, Any], words: Mapping[str, Word], place: RunPlace) -> int:
    """Run `tk command` with the parameters `given` in a container and return its exit status.

    `words` says how parameters are said. Results are put in place only when the command succeeds, each
    by one rename. Raises HostError (no engine, no image, a lost container, accelerators that cannot be used),
    MemoryLimitError and DiskLimitError for what there was too little of in the container, and what resolving
    a name raises.
    """
    from toolchain.recipes.catalog import load_catalog

    if place.selection.additions and _is_reference(place.image):
        raise UsageError(
            "an image that is named by its reference is taken as it is",
            where=f"--image {place.image}",
            hint="--with-apt, --with-pip and --with go with a name of `tk image list`",
        )
    site = load_site(place.selection.site)
    needs = needs_of(command, given, place.asked, load_catalog(site.recipe_folders))
    call = call_of(command, _with_output(command, given), words)
    engine = _engine_if_needed(place)
    # What this machine lacks is said before an image is built; elsewhere the look is taken in the image.
    early = _given(engine, None, needs, place) if _is_here(engine, place) else None
    if engine is None:
        _explain_without_engine(place, call, early or Given(), json=bool(given.get("json")))
        return 0
    reference, is_built = _reference(engine, place)
    devices = early or _given(engine, reference if is_built else None, needs, place)
    _say(devices)
    if devices.archs:
        call.argv.append(f"--arch={','.join(devices.archs)}")
    if place.explain:
        json = bool(given.get("json"))
        _explain(engine, reference, call, devices, place.limits, is_built=is_built, json=json)
        return 0
    image = probe_image(engine, reference)
    if command == "compile":
        call.argv += [f"--record=image={image.id}", f"--record=libc={image.libc}"]
    remove_abandoned_directories("tk")
    engine.start_reaper()  # before there is a directory to remove
    with private_directory("tk-job") as directory:
        job = Job(
            tuple(call.argv),
            call.inputs,
            directory if call.results else None,
            devices=devices.options,
            present=devices.present,
            limits=place.limits,
            extra=_extra_of(call),
        )
        with progress_bar(f"{command} in {image.reference}"):
            said: deque[str] = deque(maxlen=LAST_LINES)
            done = run_job(
                engine, image, job, lambda line: said.append(_talk(call, line)), index=site.pip_index or None
            )
        _check_memory(command, done, place)
        if done.status == 0:
            _place_results(call, directory)
        elif done.status in OF_PROGRAMS:
            for hint in advice_on(list(said)):
                console.talk(f"hint: {hint}")
    console.verbatim(call.translate(done.stdout).decode(errors="backslashreplace"))
    return done.status


def _check_memory(command: str, done: Done, place: RunPlace) -> None:
    """Raise MemoryLimitError where work failed as the kernel ended parts of it."""
    if not (done.status and done.killed):
        return
    limit, ended = (
        place.limits.memory,
        f"the kernel ended {counted(done.killed, 'process', 'processes')} in it",
    )
    raise MemoryLimitError(
        f"`tk {command}` ran out of memory in its container",
        why=f"{ended}; the limit is {limit:,} bytes"
        if limit
        else f"{ended}; the engine's machine had no more",
        hint="raise the memory limit" if limit else "free some memory there, or use a larger machine",
    )


def _engine_if_needed(place: RunPlace) -> Engine | None:
    """The engine; None where none answers and nothing is to be run. Raises HostError."""
    try:
        return open_chosen(place.engine)
    except HostError as error:
        if not place.explain:
            raise
        console.warn(f"{error}: shown as for Docker on this machine")
        return None


def _is_here(engine: Engine | None, place: RunPlace) -> bool:
    """Whether the devices of the engine's machine can be looked at from here."""
    return engine is None or engine.is_local or place.asked.assumed is not None


def _given(engine: Engine | None, image: str | None, needs: tuple[Need, ...], place: RunPlace) -> Given:
    """The devices that a job gets on the engine's machine, which is looked at only when there is a need."""
    if not needs:
        return Given()
    if engine is None:
        assumed = place.asked.assumed
        inventory = detect(host_probe.read_captured(assumed) if assumed else capture())
        return give(needs, inventory, EngineFacts("docker"), this_caller(), place.asked.wishes)
    inventory = detect(host_probe.look(engine, image, place.asked.assumed))
    return give(needs, inventory, engine_facts(engine), this_caller(), place.asked.wishes)


def _say(devices: Given) -> None:
    for note in devices.notes:
        console.warn(note)
    if devices.archs:
        console.talk(f"compiling for {', '.join(devices.archs)}, the accelerator's own architecture")


def _explain_without_engine(place: RunPlace, call: Call, devices: Given, *, json: bool) -> None:
    """Show what a job would be started with, where no engine can say whether the image is there."""
    reference = place.image
    if not _is_reference(reference):
        reference = _named(place).plan.reference
    _say(devices)
    if devices.archs:
        call.argv.append(f"--arch={','.join(devices.archs)}")
    _explain(None, reference, call, devices, place.limits, is_built=False, json=json)


def _explain(
    engine: Engine | None,
    reference: str,
    call: Call,
    devices: Given,
    limits: ContainerLimits,
    *,
    is_built: bool,
    json: bool,
) -> None:
    """Show what the job's container would be started with."""
    job = Job(tuple(call.argv), devices=devices.options, present=devices.present, limits=limits)
    compiler = "tk-compiler"
    if engine is not None and is_built:
        compiler = compiler_name(probe_image(engine, reference).python_version, _extra_of(call))
    options = job_options(job, compiler, cache_name(job.owner[0]))
    if not is_built:
        console.warn(f"{reference} is not built yet")
    if json:
        said = {"image": reference, "options": options, "checked_inside": job.present, "command": job.argv}
        console.data_json({"job": said})
        return
    console.data(f"image {reference}")
    for line in describe_options(options):
        console.data(line)
    if job.present:
        console.data(f"looked at inside before the work: {', '.join(job.present)}")
    console.data(f"command inside: tk {shlex.join(job.argv)}")


def _reference(engine: Engine, place: RunPlace) -> tuple[str, bool]:
    """The image that `place` names, and whether the engine has it; built first when that was asked for."""
    if _is_reference(place.image):
        return place.image, engine.image(place.image) is not None
    from toolchain.provision.obtain import obtain, wants_build
    from toolchain.provision.present import find_present, not_there

    named = _named(place)
    for warning in named.warnings:
        console.warn(warning)
    there = find_present(engine, named)
    if there is not None and (there.is_current or not place.build):
        if there.note:
            console.warn(there.note)
        return there.reference, True
    if place.explain:
        return named.plan.reference, False
    if not place.build and not wants_build(engine, named):
        raise not_there(engine, named.plan)
    made = obtain(engine, named, trust_first_use=place.trust_first_use)
    return made.image.reference, True


def _named(place: RunPlace) -> Named:
    """The image that `place` names by its recipe."""
    from toolchain.images.named import plan_named

    return plan_named(place.image, place.selection, locks=place.build)


def _is_reference(image: str) -> bool:
    """Whether an image is named by its reference, not as a recipe."""
    return "/" in image or ":" in image


def _extra_of(call: Call) -> str:
    """The extra of the project that a call needs the packages of."""
    return "tune" if " ".join(call.argv[:2]) == TUNE else ""


def _with_output(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The default of `-o` is in the caller's folder, so the container must be told."""
    file = given.get("model", given.get("file"))
    if given.get("output") is not None or not isinstance(file, Path):
        return dict(given)
    if command == "compile":
        return {**given, "output": Path(file.stem + options.suffix_of(given.get("emit", "library")))}
    if command == TUNE and not given.get("plan"):
        return {**given, "output": Path(f"{file.stem}.so")}
    if command == "view" and not given.get("json"):
        return {**given, "output": Path(f"{file.stem}.html")}
    return dict(given)


def _talk(call: Call, line: bytes) -> str:
    """Show a line of the job; returns it."""
    text = call.translate(line).decode(errors="backslashreplace")
    sys.stderr.write(text)
    return text


def _place_results(call: Call, directory: Path) -> None:
    for inside, target in call.results.items():
        made = directory / inside
        if made.is_dir():
            for path in sorted(one for one in made.rglob("*") if one.is_file()):
                replace_atomic(path, target / path.relative_to(made))
        elif made.exists():
            replace_atomic(made, target)
