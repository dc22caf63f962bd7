"""Run a `tk` command in a container of an image: which image, what goes in, what comes out."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compiler import HostError, private_directory, remove_abandoned_directories, replace_atomic
from toolchain import console
from toolchain.containers.call import Call, call_of
from toolchain.containers.job import Job, run_job
from toolchain.containers.probe import probe_image
from toolchain.engine.client import Engine, open_engine
from toolchain.engine.endpoint import resolve_endpoint
from toolchain.site import load_site


@dataclass(frozen=True, slots=True)
class Place:
    """Where a command runs: `image` is a recipe's name or a reference; the rest says which engine."""

    image: str
    build: bool = False
    docker_host: str | None = None
    engine: str | None = None
    site: Path | None = None
    locked: bool = False
    frozen: bool = False


def image_of_target(
    target: str, docker_host: str | None, engine: str | None, site: Path | None
) -> str | None:
    """The recipe's name of the image that a target is built in; None where no engine answers."""
    from toolchain.recipes.book import load_book
    from toolchain.recipes.targets import image_for

    try:
        open_engine(resolve_endpoint(docker_host, kind=engine), kind=engine)
    except HostError:
        return None
    chosen = image_for(target, load_book(load_site(site).recipe_folders))
    console.talk(f"this machine cannot build for {target}: using the image {chosen.image}")
    return chosen.image


def run_placed(command: str, given: Mapping[str, Any], flags: Mapping[str, str], place: Place) -> int:
    """Run `tk command` with the parameters `given` in a container and return its exit status.

    `flags` maps parameters to long options. Results are put in place only when the command succeeds, each
    by one rename. Raises HostError (no engine, no image, a lost container) and what resolving a name raises.
    """
    call = call_of(command, _with_output(command, given), flags)
    engine = open_engine(resolve_endpoint(place.docker_host, kind=place.engine), kind=place.engine)
    image = probe_image(engine, _reference(engine, place))
    if command == "compile":
        call.argv += [f"--record=image={image.id}", f"--record=libc={image.libc}"]
    index = load_site(place.site).pip_index or None
    remove_abandoned_directories("tk")
    with private_directory("tk-job") as directory:
        job = Job(tuple(call.argv), call.inputs, directory if call.results else None)
        with console.progress(f"{command} in {image.reference}"):
            done = run_job(engine, image, job, lambda line: _talk(call, line), index=index)
        if done.status == 0:
            _place_results(call, directory)
    sys.stdout.write(call.translate(done.stdout).decode(errors="backslashreplace"))
    return done.status


def _reference(engine: Engine, place: Place) -> str:
    """The reference of the image that `place` names, built first when that was asked for."""
    if "/" in place.image or ":" in place.image:
        return place.image
    from toolchain.engine.build import build_image
    from toolchain.engine.progress import BuildDisplay
    from toolchain.engine.store import find_image, list_images
    from toolchain.images.lock import lock_mode
    from toolchain.images.named import plan_named

    mode = lock_mode(locked=place.locked, frozen=place.frozen)
    named = plan_named(place.image, site_file=place.site, lock=mode)
    for warning in named.warnings:
        console.warn(warning)
    if find_image(engine, named.plan) is not None:
        return named.plan.reference
    for stored in list_images(engine):
        if stored.name == named.plan.name and stored.state == "stand-in":
            console.warn(f"{stored.references[0]} was built on a stand-in: {stored.stand_in}")
            return stored.references[0]
    if not place.build:
        raise HostError(
            f"the engine at {engine.endpoint} has no image of {named.plan.name} as its recipe is now",
            hint=f"add --build, or build it first: `tk image build {named.plan.name}`",
        )
    return build_image(engine, named.plan, site=named.site, progress=BuildDisplay).reference


def _with_output(command: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The default of `tk compile -o` is in the caller's folder, so the container must be told."""
    model, emit = given.get("model"), given.get("emit", "library")
    if command != "compile" or given.get("output") is not None or not isinstance(model, Path):
        return dict(given)
    return {**given, "output": Path(model.stem + (".so" if emit == "library" else f".{emit}s"))}


def _talk(call: Call, line: bytes) -> None:
    sys.stderr.write(call.translate(line).decode(errors="backslashreplace"))


def _place_results(call: Call, directory: Path) -> None:
    for inside, target in call.results.items():
        made = directory / inside
        if made.is_dir():
            for path in sorted(one for one in made.rglob("*") if one.is_file()):
                replace_atomic(path, target / path.relative_to(made))
        elif made.exists():
            replace_atomic(made, target)
