"""`tk package`: what a deployment of a library needs, and nothing else."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import compiler
from toolchain import console, options
from toolchain.commands.compile import compile_options
from toolchain.commands.image import common, target
from toolchain.deploy.wishes import ImageWishes
from toolchain.progress import progress_bar

if TYPE_CHECKING:
    from toolchain.deploy.ground import Runtime
    from toolchain.deploy.library import PackagedLibrary
    from toolchain.deploy.package import ImageFacts, PackageReport

_OF_A_COMPILE_ALONE = ("dump", "stop_after", "start_from", "emit", "timings", "record")


@dataclass(frozen=True, slots=True)
class Described:
    """What the options say of a package beside its format."""

    name: str
    version: str
    licence: str
    licence_files: tuple[Path, ...]


def described(
    name: Annotated[
        str | None,
        typer.Option(
            "--name",
            metavar="NAME",
            help="What it is called: tk-model-NAME; default: the file's name, made plain.",
        ),
    ] = None,
    package_version: Annotated[
        str | None,
        typer.Option(
            "--package-version",
            metavar="VERSION",
            help="Its version; default: one made from the library's bytes.",
        ),
    ] = None,
    licence: Annotated[
        str | None,
        typer.Option("--licence", metavar="SPDX", help="What the model is under, as an SPDX expression."),
    ] = None,
    licence_file: Annotated[
        list[Path] | None,
        typer.Option("--licence-file", metavar="FILE", help="A licence of the model to add; repeatable."),
    ] = None,
) -> Described:
    """How a package is described."""
    files = tuple(map(options.existing_file, licence_file or ()))
    return Described(name or "", package_version or "", licence or "", files)


def image_wishes(
    tag: Annotated[
        str | None,
        typer.Option(
            "--tag", metavar="NAME:TAG", help="What an image is called; default: tk-model-NAME:VERSION."
        ),
    ] = None,
    inputs: options.Input = None,
    seed: options.Seed = 0,
    load: Annotated[
        bool, typer.Option("--load", help="Load the image into the engine, and run its self test there.")
    ] = False,
    push: Annotated[
        str | None,
        typer.Option("--push", metavar="REGISTRY/NAME:TAG", help="As --load; then push the image as this."),
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(
            "--base",
            metavar="IMAGE",
            help="Put it onto an image that has the target's runtime: one of `tk image list`, any of the"
            " engine, an archive or an OCI layout.",
        ),
    ] = None,
) -> ImageWishes:
    """What is asked of an image, beside the engine that it goes to."""
    return ImageWishes(tag, tuple(inputs or ()), seed, load, push or "", base or "")


def package_command(
    file: Annotated[
        Path,
        typer.Argument(metavar="LIBRARY", help="A model library, or an ONNX file, which is compiled first."),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="OUT",
            help="Where to write; default: tk-model-NAME with a suffix, here.",
        ),
    ] = None,
    file_format: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="KIND", help="dir, tar, wheel or oci; default: as OUT ends, else dir."
        ),
    ] = None,
    *,
    about: Annotated[Described, options.Depends(described)],
    image: Annotated[ImageWishes, options.Depends(image_wishes)],
    engine: common.Engine = common.ANY_ENGINE,
    settings: Annotated[
        compiler.CompileOptions, options.Depends(compile_options, without=_OF_A_COMPILE_ALONE)
    ],
    allowance: Annotated[compiler.Allowance, options.Depends(options.allowance_of)],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be in it; write nothing.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Package a model library with what a deployment needs.

    A folder or archive has the library, its header, examples in C and C++ with files for CMake and
    pkg-config, a loader for Python, licences, a bill of materials and checksums. A wheel is installed by pip
    and needs no other package. An image (oci) runs the library and has nothing else in it.
    """
    from toolchain.deploy.image import make_image
    from toolchain.deploy.library import read_library
    from toolchain.deploy.package import chosen_format, default_output, make_package

    kind = chosen_format(file_format, output)
    if kind != "oci" and (image, engine) != (image_wishes(), common.ANY_ENGINE):
        raise compiler.UsageError(
            f"a package of the format {kind} is no image",
            where="--tag, --base, --input, --seed, --load, --push, --engine, --docker-host",
            hint="--format oci",
        )
    if not options.is_library(options.existing_file(file)):
        compiler.go_on_within(allowance, str(file))
    with _library_of(file, settings) as path, progress_bar(f"packaging {file.name}"):
        name = about.name or _plain_stem(file)
        library = read_library(path, name=name, version=about.version, licence=about.licence)
        place = default_output(library, kind, output)
        options.check_folder(place)
        if kind == "oci":
            wanted = None if output is None and image.needs_engine else place
            connect = functools.partial(target.connect, engine)
            report = make_image(
                library, image, wanted, about.licence_files,
                runtime=_runtime_of(library), connect=connect, dry_run=dry_run,
            )  # fmt: skip
        else:
            report = make_package(library, kind, place, about.licence_files, dry_run=dry_run)
    if json:
        console.data_json(report)
        return
    _show(report, dry_run=dry_run)


def _runtime_of(library: PackagedLibrary) -> Runtime:
    """Of the library's target, by the recipes; raises as `find_target` and `image_for`."""
    from toolchain.deploy.ground import Runtime
    from toolchain.devices.arch import VENDORS
    from toolchain.recipes.targets import find_target, image_for

    if not library.needs_device:
        return Runtime(None, "")
    catalog, _ = common.open_recipes(None)
    target = str(library.manifest["target"])
    row = find_target(target, catalog).row
    return Runtime(
        next((one for one in VENDORS if one == row.vendor), None), image_for(target, catalog).image
    )


def _plain_stem(file: Path) -> str:
    """The name of a model's or library's package by its file's."""
    from toolchain.deploy.library import plain_name

    return plain_name(file.name.removesuffix(file.suffix))


@contextlib.contextmanager
def _library_of(file: Path, settings: compiler.CompileOptions) -> Iterator[Path]:
    """The library that is packaged: the file itself, or what it is compiled to."""
    if options.is_library(file):
        if settings != compile_options():
            raise compiler.UsageError(
                "a library is compiled already",
                where=str(file),
                hint="leave out the options of `tk compile`, or name the ONNX file",
            )
        yield file
        return
    with compiler.private_directory("tk-package") as folder:
        path = folder / "model.so"
        with options.naming_the_command("package", file), progress_bar(f"compiling {file.name}") as progress:
            made = compiler.compile_model(file, replace(settings, output=path), progress=progress)
        for warning in made.warnings:
            console.warn(warning)
        yield path


def _show(report: PackageReport, *, dry_run: bool) -> None:
    if dry_run:
        rows = [(one.path, one.bytes) for one in report.files]
        console.data(console.table(("file", "bytes"), rows))
        console.talk(f"{report.name} would hold these {compiler.counted(len(report.files), 'file')}")
        return
    console.data(str(report.path or (report.image and report.image.reference)))
    size, own = console.size(report.bytes or 0), console.size(report.library_bytes)
    console.talk(f"{report.name} {report.version}: {size}, the library {own}; licence {report.licence}")
    if report.image is not None:
        _show_image(report.image)


def _show_image(image: ImageFacts) -> None:
    from toolchain.deploy.on_engine import LEAST_RIGHTS

    console.talk(f"{image.reference}: {console.size(image.beside)} beside the library")
    if image.base:
        console.talk(f"on {image.base} ({image.base_digest}): {console.size(image.base_bytes)}")
    if image.untested:
        console.talk(f"not run: the self test: {image.untested}")
    if image.loaded is not None:
        console.talk(f"loaded: {console.size(image.loaded)}")
    if image.self_test:
        console.talk(image.self_test.rstrip())
    for engine in dict.fromkeys(one.engine for one in image.access):
        words = " ".join(one.option for one in image.access if one.engine == engine)
        console.talk(f"run it with `{engine} run --rm {words} {image.reference}`")
    for one in dict.fromkeys((one.option, one.reason) for one in image.access):
        console.talk(f"  {one[0]}: {one[1]}")
    if image.loaded is not None and not image.base:
        console.talk(f"run it with `docker run --rm {' '.join(LEAST_RIGHTS)} {image.reference}`")
    if image.pushed:
        console.talk(f"pushed: {image.pushed}")
