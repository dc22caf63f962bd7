"""An image of a library, slim or on a base: written as an archive; on an engine loaded, tested, pushed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import UsageError, private_directory
from toolchain.deploy.ground import Ground, Runtime, check_ground, image_readme, is_file, read_ground
from toolchain.deploy.library import PackagedLibrary
from toolchain.deploy.oci import architecture_of, image_reference, write_image
from toolchain.deploy.on_engine import load_archive, needed_on, self_test
from toolchain.deploy.package import Access, ImageFacts, PackageReport, report_of
from toolchain.deploy.sample import Sample, make_sample
from toolchain.deploy.slim import ImageLayer, based_layers, slim_layers
from toolchain.deploy.wishes import ImageWishes
from toolchain.devices.elsewhere import option_words
from toolchain.engine.store import push_reference

if TYPE_CHECKING:
    from toolchain.engine.client import Engine


def make_image(
    library: PackagedLibrary,
    wishes: ImageWishes,
    output: Path | None,
    licence_files: Sequence[Path] = (),
    *,
    runtime: Runtime,
    connect: Callable[[], Engine],
    dry_run: bool = False,
) -> PackageReport:
    """Write a library's image to `output`, None for an engine alone; with `dry_run` say what would be in it.

    runtime: of the library's target. connect: gives the engine, where one is needed. Raises UsageError for a
    library that needs a device and has no base, or one that lacks something, HostError where compiler or
    engine are missing, and WrongResultError where the self test fails.
    """
    _check(library, wishes, runtime)
    reference = image_reference(library, wishes.reference)
    push = image_reference(library, wishes.push) if wishes.push else ""
    sample = make_sample(library, wishes.inputs, wishes.seed)
    with contextlib.ExitStack() as stack:
        ground = _ground(library, wishes, runtime, connect, stack)
        layers = _layers(library, sample, licence_files, ground, reference)
        files = [file for layer in layers for file in layer.files]
        beside = sum(file.size for file in files) - library.path.stat().st_size
        facts = _on_base(ImageFacts(reference, "", beside, sample.missing), ground)
        if dry_run:
            return replace(report_of(library, "oci", output, files, None), image=facts)
        path = stack.enter_context(_archive(output))
        facts = replace(facts, digest=write_image(library, layers, reference, path, ground))
        size = path.stat().st_size
        if wishes.needs_engine:
            facts = _on_engine(connect(), path, facts, push, ground)
    return replace(report_of(library, "oci", output, files, size), image=facts)


def _check(library: PackagedLibrary, wishes: ImageWishes, runtime: Runtime) -> None:
    if library.needs_device and not wishes.base:
        name = runtime.image
        raise UsageError(
            f"an image of a library for {library.manifest['target']} needs a base with its vendor's runtime",
            where=str(library.path),
            why="a slim image has glibc and the C++ runtime alone",
            hint=f"--base {name} (`tk image build {name}` makes it), or any image or archive that has that"
            " runtime; or --format tar, unpacked in such an image",
        )


def _ground(
    library: PackagedLibrary,
    wishes: ImageWishes,
    runtime: Runtime,
    connect: Callable[[], Engine],
    stack: contextlib.ExitStack,
) -> Ground | None:
    if not wishes.base:
        return None
    engine = None if is_file(wishes.base) else connect()
    folder = stack.enter_context(private_directory("tk-package"))
    return read_ground(wishes.base, runtime, architecture_of(library), folder, engine)


def _layers(
    library: PackagedLibrary,
    sample: Sample,
    licence_files: Sequence[Path],
    ground: Ground | None,
    reference: str,
) -> tuple[ImageLayer, ...]:
    if ground is None:
        return slim_layers(library, sample.files, licence_files)
    readme = image_readme(library, ground, reference, has_sample=bool(sample.files))
    layers, runner = based_layers(library, sample.files, licence_files, readme=readme)
    check_ground(ground, library, runner)
    return layers


def _on_base(facts: ImageFacts, ground: Ground | None) -> ImageFacts:
    if ground is None:
        return facts
    access = tuple(
        Access(engine, option_words(one), one.reason, one.source)
        for engine in ground.commands()
        for one in ground.options(engine)
    )
    base = ground.base
    return replace(facts, base=base.name, base_digest=base.digest, base_bytes=base.size, access=access)


@contextlib.contextmanager
def _archive(output: Path | None) -> Iterator[Path]:
    """Where the archive is written: a private place, unless it is wanted."""
    if output is not None:
        yield output
        return
    with private_directory("tk-package") as folder:
        yield folder / "image.tar"


def _on_engine(engine: Engine, path: Path, facts: ImageFacts, push: str, ground: Ground | None) -> ImageFacts:
    found = replace(facts, loaded=load_archive(engine, path, facts.reference))
    if not found.untested:
        needed = needed_on(engine, ground)
        if isinstance(needed, str):
            found = replace(found, untested=needed)
        else:
            found = replace(found, self_test=self_test(engine, facts.reference, needed))
    if push:
        digest = push_reference(engine, facts.reference, push)
        found = replace(found, pushed=f"{push.rpartition(':')[0]}@{digest}")
    return found
