"""`tk image bundle`: everything that a build needs as one file, for machines without internet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import BadInputError, counted
from toolchain import console, options
from toolchain.commands.image import common, target
from toolchain.site import FILE_NAME

if TYPE_CHECKING:
    from toolchain.provision.bundled_recipes import Recipes

app = typer.Typer(help="Everything that a build needs as one file.", no_args_is_help=True)


@app.callback()
def bundle() -> None:
    """Everything that a build needs as one file."""


def export_command(
    name: common.Name,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="Where to write; default: NAME.tkbundle.tar."),
    ] = None,
    selection: common.SelectedBase = common.NO_SELECTION,
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """Write a bundle: base and component images, packages, wheels, downloads, the lock.

    The image must be locked, and its components built.
    """
    from toolchain.images.lock.file import read_lock
    from toolchain.images.lock.pins import lock_path
    from toolchain.provision.bundle import export_bundle

    options.check_file(output)
    connected = target.connect(engine)
    made = target.planned(name, selection, ready=False)
    lock = read_lock(made.lock_file) if made.lock_file is not None else None
    if lock is None:
        raise BadInputError(
            f"no lock fixes what {made.plan.name} is built from",
            where=str(lock_path()),
            why="\n".join(made.stale),
            hint=f"`tk image lock {made.plan.typed}`, then `tk image build {made.plan.typed} --locked`",
        )
    path = output or Path(f"{made.plan.name}.tkbundle.tar")
    section = lock.images[made.plan.section]
    manifest = export_bundle(connected, made.plan, section, made.site, path, say=console.talk)
    size = path.stat().st_size
    if json:
        console.data_json(
            {"bundle": path, "bytes": size, "files": len(manifest.files), "plan": manifest.plan}
        )
    else:
        console.data(str(path))
        console.talk(f"{counted(len(manifest.files), 'file')}, {console.size(size)}")


def import_command(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A bundle made by `tk image bundle export`.")],
    engine: common.Engine = common.ANY_ENGINE,
    json: options.Json = False,
) -> None:
    """Check a bundle, keep its files, load its images, and write its section into tk.lock.

    A site's own recipes are copied into the project, where it lacks them, and named in its site.yaml. Then
    `tk image build NAME --locked --network none` builds from it.
    """
    from toolchain.images.lock.pins import lock_path
    from toolchain.provision.bundle import import_bundle, section_of
    from toolchain.provision.bundled_recipes import use_recipes

    options.existing_file(file)
    connected = target.connect(engine)
    lock = lock_path()
    found = import_bundle(connected, file, lock, say=console.talk)
    recipes = use_recipes(found, lock.parent)
    name = found.manifest.name
    if json:
        facts = {"name": name, "plan": found.manifest.plan, "folder": found.folder}
        console.data_json({**facts, "fits": recipes.fits, "recipes": recipes.copied})
        return
    console.data(name)
    _tell(recipes, lock.parent)
    base = f" --base {found.manifest.base}" if section_of(found).stand_in else ""
    console.talk(f"`tk image build {name}{base} --locked --network none` builds it")


def _tell(recipes: Recipes, project: Path) -> None:
    if recipes.copied:
        console.talk(f"its own recipes are in {', '.join(map(str, recipes.copied))}")
    if recipes.written is not None:
        console.talk(f"{recipes.written} names them")
    elif recipes.lines:
        console.warn(f"before it can be built, add to {project / FILE_NAME}:")
        console.data(recipes.lines.rstrip("\n"))
    if not recipes.fits and not recipes.lines:
        console.warn(f"the recipes here are not those of the export: {recipes.problem}")


app.command("export")(options.spread(export_command))
app.command("import")(options.spread(import_command))
