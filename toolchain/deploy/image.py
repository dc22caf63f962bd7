"""A slim image of a library: written as an archive, and on an engine loaded, tested and pushed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from compiler import UsageError, private_directory
from toolchain.deploy.library import PackagedLibrary
from toolchain.deploy.oci import image_reference, write_image
from toolchain.deploy.on_engine import load_archive, self_test
from toolchain.deploy.package import ImageFacts, PackageReport, report_of
from toolchain.deploy.sample import make_sample
from toolchain.deploy.slim import slim_layers
from toolchain.deploy.wishes import ImageWishes
from toolchain.engine.store import push_reference

if TYPE_CHECKING:
    from toolchain.engine.client import Engine


def make_image(
    library: PackagedLibrary,
    wishes: ImageWishes,
    output: Path | None,
    licence_files: Sequence[Path] = (),
    *,
    connect: Callable[[], Engine],
    dry_run: bool = False,
) -> PackageReport:
    """Write a library's image to `output`, None for an engine alone; with `dry_run` say what would be in it.

    connect: gives the engine, where one is needed. Raises UsageError for a library that needs a device,
    HostError where compiler or engine are missing, and WrongResultError where the self test fails.
    """
    _check(library)
    reference = image_reference(library, wishes.reference)
    push = image_reference(library, wishes.push) if wishes.push else ""
    sample = make_sample(library, wishes.inputs, wishes.seed)
    layers = slim_layers(library, sample.files, licence_files)
    files = [file for layer in layers for file in layer.files]
    beside = sum(file.size for file in files) - library.path.stat().st_size
    facts = ImageFacts(reference, "", beside, sample.missing)
    if dry_run:
        return replace(report_of(library, "oci", output, files, None), image=facts)
    with _archive(output) as path:
        facts = replace(facts, digest=write_image(library, layers, reference, path))
        size = path.stat().st_size
        if wishes.needs_engine:
            facts = _on_engine(connect(), path, facts, push)
    return replace(report_of(library, "oci", output, files, size), image=facts)


def _check(library: PackagedLibrary) -> None:
    if library.needs_device:
        raise UsageError(
            "images are made of libraries whose kernels run on the processor",
            where=str(library.path),
            why=f"this one is for {library.manifest['target']}, whose runtime is its vendor's",
            hint="--format tar, unpacked in an image with that runtime (`tk image list`)",
        )


@contextlib.contextmanager
def _archive(output: Path | None) -> Iterator[Path]:
    """Where the archive is written: a private place, unless it is wanted."""
    if output is not None:
        yield output
        return
    with private_directory("tk-package") as folder:
        yield folder / "image.tar"


def _on_engine(engine: Engine, path: Path, facts: ImageFacts, push: str) -> ImageFacts:
    found = replace(facts, loaded=load_archive(engine, path, facts.reference))
    if not found.untested:
        found = replace(found, self_test=self_test(engine, facts.reference))
    if push:
        digest = push_reference(engine, facts.reference, push)
        found = replace(found, pushed=f"{push.rpartition(':')[0]}@{digest}")
    return found
