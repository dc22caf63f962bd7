"""`tk ci`: workflows that publish images, and what they wrote down."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from compiler import BadInputError, UsageError, write_atomic
from toolchain import console, options
from toolchain.commands.image import target
from toolchain.images.selection import Selection

if TYPE_CHECKING:
    from toolchain.provision.publish import Registry
    from toolchain.recipes.evidence import Evidence

app = typer.Typer(help="Workflows for GitHub Actions: init, record.", no_args_is_help=True)

_OWN_NAME = "tk-toolchain"
_FOLDER = Path(".github") / "workflows"
_WORDS = re.compile(r"[A-Za-z0-9][A-Za-z0-9 ._+@:/=,~^<>!\[\]-]*|\.")
_EVIDENCE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*")


@app.command("init")
def init_command(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Images to publish; default: those of tk.lock.", show_default=False
        ),
    ] = None,
    registry: target.Registry = None,
    private: target.Private = False,
    package: Annotated[
        str | None,
        typer.Option(
            "--package",
            metavar="WHAT",
            help="What pip installs as tk: a wheel's URL, or git+https://...@COMMIT.",
        ),
    ] = None,
    evidence: Annotated[
        str | None,
        typer.Option("--evidence", metavar="FILE", help="In the repository; default: evidence.json."),
    ] = None,
    release: Annotated[
        bool, typer.Option("--release", help="Also the workflow that releases tk itself, in its repository.")
    ] = False,
    site: options.Site = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write over a workflow that is there and differs.")
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the workflows; write nothing.")] = False,
    json: options.Json = False,
) -> None:
    """Write .github/workflows/tk-images.yml: lock, build, check and push images, and commit the evidence.

    The registry is the site's, else the repository's own packages at ghcr.io. Jobs have the least permissions
    and actions are pinned to commits. What may not be redistributed needs a registry that is said to be
    private.
    """
    from toolchain.site import load_site, project_directory
    from toolchain.workflows import GHCR, IMAGES, RELEASE, ImagesWorkflow, images_workflow, release_workflow

    project = project_directory()
    config = load_site(site)
    where = target.push_target(config, registry or config.registry or GHCR, private=private)
    wanted = ImagesWorkflow(
        names=_images(names or _locked_names(), where, site),
        registry=where.address,
        private=where.private,
        package=_package(package, project),
        evidence=_evidence(evidence, project),
    )
    texts = {_FOLDER / IMAGES: images_workflow(wanted)}
    if release:
        _refuse_others_release(project)
        texts[_FOLDER / RELEASE] = release_workflow()
    if not dry_run:
        _refuse_changed(project, texts, force=force)
    written = [] if dry_run else [name for name, text in texts.items() if _write(project / name, text)]
    _tell(project, texts, written, dry_run=dry_run, json=json)


def _images(names: Sequence[str], where: Registry, site: Path | None) -> list[str]:
    from toolchain.provision.publish import refuse_unredistributable

    images = target.planned_all(names, Selection(site))
    refuse_unredistributable([one.plan for one in images], where)
    return list(dict.fromkeys(one.plan.section for one in images))


def _locked_names() -> list[str]:
    from toolchain.images.lock.file import read_lock
    from toolchain.images.lock.pins import lock_path

    lock = read_lock(lock_path())
    if lock is None or not lock.images:
        raise UsageError(
            "which images?",
            where="tk ci init",
            why=f"{lock_path()} names none",
            hint="tk ci init NAME...; see `tk image list`",
        )
    return sorted(lock.images)


def _package(asked: str | None, project: Path) -> str:
    if asked is not None:
        if not _WORDS.fullmatch(asked):
            raise UsageError(
                f"`{asked}` is nothing that pip can install",
                where="--package",
                hint="a wheel's URL, or git+https://HOST/PATH@COMMIT",
            )
        return asked
    if _is_own(project):
        return ".[verify]"
    raise UsageError(
        "what should pip install as tk?",
        where="--package",
        why="no package index has it, and this is not its own repository",
        hint="--package with a wheel's URL, or git+https://HOST/PATH@COMMIT",
    )


def _evidence(asked: str | None, project: Path) -> str:
    text = asked or ("recipes/evidence.json" if _is_own(project) else "evidence.json")
    if not _EVIDENCE.fullmatch(text):
        raise UsageError(
            f"`{text}` is no file of the repository", where="--evidence", hint="as `ci/evidence.json`"
        )
    return text


def _is_own(project: Path) -> bool:
    """Whether this is the repository of tk itself."""
    import tomllib

    try:
        found = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    own = found.get("project", {})
    return isinstance(own, dict) and own.get("name") == _OWN_NAME


def _refuse_others_release(project: Path) -> None:
    if not _is_own(project):
        raise UsageError(
            "--release is for the repository of tk itself",
            where=str(project),
            hint="leave it out: the workflow for images stands alone",
        )


def _refuse_changed(project: Path, texts: dict[Path, str], *, force: bool) -> None:
    there = [name for name, text in texts.items() if _differs(project / name, text)]
    if there and not force:
        raise BadInputError(
            f"{', '.join(map(str, there))} would be written over",
            where=str(project),
            why="what is there differs from what would be written",
            hint="--dry-run shows it; --force writes it",
        )


def _differs(path: Path, text: str) -> bool:
    return path.exists() and options.existing_file(path).read_bytes() != text.encode()


def _write(path: Path, text: str) -> bool:
    """Whether the file was changed."""
    if path.exists() and not _differs(path, text):
        return False
    write_atomic(path, text.encode())
    return True


def _tell(
    project: Path, texts: dict[Path, str], written: Sequence[Path], *, dry_run: bool, json: bool
) -> None:
    if json:
        files = [
            {"path": project / name, "written": name in written, "text": text} for name, text in texts.items()
        ]
        console.data_json({"files": files})
        return
    for name, text in texts.items():
        if dry_run:
            console.talk(f"{project / name} would be:")
            console.data(text.rstrip("\n"))
            continue
        console.talk("commit it" if name in written else f"{name} is up to date")
        console.data(str(project / name))


@app.command("record")
def record_command(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Written by `tk image publish --evidence`.")
    ],
    evidence: Annotated[
        Path | None,
        typer.Option(
            "--evidence", metavar="FILE", help="Where it goes; default: evidence.json beside tk.lock."
        ),
    ] = None,
    site: options.Site = None,
    json: options.Json = False,
) -> None:
    """Join evidence that several jobs wrote into one file, and name the published images in tk.lock.

    An image is named when tk.lock has a section for it and it was built from the plan of today.
    """
    from toolchain.recipes.evidence import FILE, load_evidence, record_evidence
    from toolchain.site import project_directory

    missing = [one for one in files if not one.is_file()]
    if missing:
        raise BadInputError("there is no such file", where="\n".join(map(str, missing)))
    found = [record for one in files for record in load_evidence(one)]
    into = evidence or project_directory() / FILE
    record_evidence(found, into)
    named = [one.name for one in found if one.state == "published" and _name_in_lock(one, site)]
    if json:
        console.data_json({"evidence": into, "records": found, "in_lock": named})
        return
    console.data(console.table(("image", "state", "in tk.lock"), _rows(found, named)))


def _rows(found: Sequence[Evidence], named: Sequence[str]) -> list[tuple[str, str, str]]:
    return [
        (one.name, one.state, "yes" if one.state == "published" and one.name in named else "")
        for one in found
    ]


def _name_in_lock(record: Evidence, site: Path | None) -> bool:
    """Whether tk.lock names the image of a record now."""
    from toolchain.images.lock.pins import lock_path, record_build

    reference, _, digest = record.image.partition("@")
    made = target.planned(record.name, Selection(site), ready=False)
    if made.lock_file != lock_path() or made.plan.key != record.plan or not digest:
        return False
    record_build(lock_path(), made.plan, reference, digest)
    return True
