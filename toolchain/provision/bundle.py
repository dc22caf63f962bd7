"""Everything that a build needs as one file, for machines without internet.

A bundle is a tar: `manifest.json` first, then each file that it names with size and sha256: the base image,
the images of components, downloads, packages with apt's signed lists, wheels, the lock's section and a
site's own recipes. It is checked while it is read. What a build fetches is then put into the engine's build
caches (cache_prefill.py), from which the build takes it without network.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Literal

from pydantic import BaseModel, ConfigDict, StringConstraints, ValidationError

from compiler import (
    BadInputError,
    HostError,
    UsageError,
    counted,
    disk,
    private_directory,
    sha256_file,
    stream_atomic,
    write_atomic,
)
from toolchain.images.lock.file import (
    SECTION,
    Lock,
    LockedImage,
    lock_text,
    parse_lock,
    read_lock,
    update_lock,
)
from toolchain.images.plan import Download, Plan
from toolchain.provision import origins
from toolchain.provision.resolving import fetch_packages

if TYPE_CHECKING:
    from toolchain.engine.client import Engine
    from toolchain.site import SiteConfig

Say = Callable[[str], None]

MANIFEST = "manifest.json"
LOCK = "tk.lock"
_MOST_MANIFEST_BYTES = 32 << 20
_CHUNK_BYTES = 1 << 20
_BASE_NAME = "tk-bundle/base"

_Path = Annotated[
    str,
    StringConstraints(
        pattern=r"^[A-Za-z0-9_+@%~][A-Za-z0-9._+@%~:-]*(/[A-Za-z0-9_+@%~][A-Za-z0-9._+@%~:-]*)*$"
    ),
]
_Url = Annotated[str, StringConstraints(pattern=r"^https?://[A-Za-z0-9._~/%+@:-]*$", max_length=400)]
_Hex = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
_Reference = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9./:@_-]*$", max_length=300)]
_Section = Annotated[str, StringConstraints(pattern=SECTION, max_length=300)]
_Rule = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9.-]*$", max_length=48)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, hide_input_in_errors=True)


class BundledFile(_Model):
    """A file of the bundle: its path, bytes and sha256."""

    path: _Path
    size: int
    sha256: _Hex


class BundledImage(_Model):
    """A saved image: its file in the bundle, the reference that it gets, and its id in the engine."""

    file: _Path
    reference: _Reference
    id: Annotated[str, StringConstraints(pattern=r"^(sha256:)?[0-9a-f]{64}$")]


class Manifest(_Model):
    """What is in a bundle, and which plan it is for.

    `name` is that of the lock's section, `mirrors` are those of apt at the time of the export, `allow` the
    rules that were waived.
    """

    format: Literal[1]
    name: _Section
    plan: _Hex
    base: _Reference
    base_image: BundledImage
    components: list[BundledImage]
    mirrors: list[list[_Url]]
    files: list[BundledFile]
    allow: list[_Rule] = []


@dataclass(frozen=True, slots=True)
class Bundle:
    """An imported bundle: the folder of its files, and its manifest."""

    folder: Path
    manifest: Manifest


def export_bundle(
    engine: Engine,
    plan: Plan,
    section: LockedImage,
    site: SiteConfig,
    output: Path,
    *,
    say: Say = lambda _text: None,
) -> Manifest:
    """Write everything that building `plan` needs to `output`.

    plan: made with the lock's `section`. Component images must have been built. Raises HostError when
    something is missing or cannot be fetched, BuildError when a version has vanished.
    """
    missing = [one for one in plan.needs if engine.image(one.reference) is None]
    if missing:
        raise HostError(
            f"{len(missing)} component images of {plan.name} are not built yet",
            why=", ".join(one.reference for one in missing),
            hint=f"`tk image build {plan.section} --locked` makes them",
        )
    with private_directory("tk-bundle") as folder:
        write_atomic(folder / LOCK, lock_text(Lock({plan.section: section})))
        _copy_recipes(site, folder)
        say(f"base {plan.base.pinned}")
        base = _save_base(engine, plan, site, folder)
        components = [
            _save(engine, one.reference, folder, f"images/{one.key[:12]}.tar", say) for one in plan.needs
        ]
        for one in plan.downloads:
            say(one.url)
            _fetch(one, site, folder / "downloads" / (one.fingerprint or one.sha256))
        say(f"packages of {plan.name}")
        _fetch_packages(engine, plan, site, folder)
        manifest = Manifest(
            format=1, name=plan.section, plan=plan.key, base=plan.base.pinned, base_image=base,
            components=components, files=_listed(folder),
            allow=[] if plan.resolution is None else list(plan.resolution.allowed),
            mirrors=[[one.original, one.mirror] for one in site.apt_mirrors],
        )  # fmt: skip
        say(f"writing {output}")
        _write(manifest, folder, output)
    return manifest


def read_bundle(path: Path, target: Path) -> Bundle:
    """Check a bundle and unpack it into the folder `target`; nothing else of it is believed.

    Raises BadInputError with the reason when it is not whole, was changed, or holds what its manifest does
    not name.
    """
    try:
        with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            members = iter(archive)
            manifest, text = _read_manifest(archive, next(members, None), path)
            _unpack(archive, members, manifest, target, path)
    except tarfile.TarError as error:
        raise _broken(path, f"it is no tar, or was cut off: {error}") from error
    except (OSError, EOFError) as error:
        raise BadInputError("cannot read the bundle", where=str(path), why=str(error)) from error
    write_atomic(target / MANIFEST, text)
    return Bundle(target, manifest)


def import_bundle(engine: Engine, path: Path, lock: Path, *, say: Say = lambda _text: None) -> Bundle:
    """Check a bundle, keep its files in the user's data folder, load its images, add its section to `lock`.

    A section with the same pins that is there already stays, with the image that it names. Raises
    BadInputError when the bundle is broken or the lock has other pins for the same image.
    """
    say(f"checking {path}")
    folder = bundle_folder(_manifest_of(path))
    disk.remove(folder / MANIFEST)  # until all is there
    bundle = read_bundle(path, folder)
    section = section_of(bundle)
    name = bundle.manifest.name

    def with_section(known: Lock) -> Lock:
        present = known.images.get(name)
        if present is not None and _pinned(present) != _pinned(section):
            raise BadInputError(
                f"the project's lock has other pins for {name} than the bundle",
                where=str(lock),
                hint="remove its section, or import in another project",
            )
        return known.with_image(name, present or section)

    with_section(read_lock(lock) or Lock())  # before images of many GB are loaded
    load_images(engine, bundle, say=say)
    update_lock(lock, with_section)
    return bundle


def _pinned(section: LockedImage) -> str:
    """What a section pins, as text; which built image it names is another matter."""
    return lock_text(Lock({"x": replace(section, built=None)}))


def bundle_folder(plan: Plan | Manifest) -> Path:
    """Where the files of a plan's bundle are kept: in the user's data folder, by the plan's key."""
    from platformdirs import user_data_path

    key = plan.plan if isinstance(plan, Manifest) else plan.key
    return user_data_path("tk", appauthor=False) / "bundles" / key[:16]


def imported_bundle(plan: Plan) -> Bundle:
    """The bundle that was imported for a plan. Raises HostError when there is none for exactly this plan."""
    folder = bundle_folder(plan)
    try:
        manifest = Manifest.model_validate_json((folder / MANIFEST).read_bytes())
    except FileNotFoundError as error:
        raise HostError(
            f"no bundle was imported for {plan.name} as it is planned now",
            why=f"there is no {folder / MANIFEST}",
            hint="`tk image bundle import FILE`; the recipes and tk.lock must be those of the export",
        ) from error
    except (OSError, ValidationError) as error:
        raise HostError("cannot use an imported bundle", where=str(folder), why=str(error)[:300]) from error
    if manifest.plan != plan.key:
        raise HostError(f"the bundle in {folder} is for another plan", hint="import it again")
    return Bundle(folder, manifest)


def load_images(engine: Engine, bundle: Bundle, *, say: Say = lambda _text: None) -> None:
    """Load a bundle's images into an engine. Raises BadInputError when one is not what the manifest says."""
    for one in (bundle.manifest.base_image, *bundle.manifest.components):
        facts = engine.image(one.reference)
        if facts is not None and _same_id(str(facts["Id"]), one.id):
            continue
        say(f"loading {one.reference}")
        with engine.guard(f"load the image {one.reference}"), (bundle.folder / one.file).open("rb") as stream:
            for _ in engine.api.load_image(stream):
                pass
        facts = engine.image(one.reference)
        if facts is None or not _same_id(str(facts["Id"]), one.id):
            found = str(facts["Id"]) if facts else "no image of that name"
            raise BadInputError(
                f"the bundle's file {one.file} is not the image {one.reference}",
                where=str(bundle.folder), why=f"expected {one.id}, the engine loaded {found}",
            )  # fmt: skip


def section_of(bundle: Bundle) -> LockedImage:
    """The section of the lock that came with a bundle."""
    path = bundle.folder / LOCK
    lock = parse_lock(path.read_bytes(), str(path))
    if set(lock.images) != {bundle.manifest.name}:
        raise _broken(path, "its lock is not for the image that the manifest names")
    return lock.images[bundle.manifest.name]


def offline_site(site: SiteConfig, bundle: Bundle) -> SiteConfig:
    """The site for a build without network: the bundle's base, apt's lists, and the wheels as pip's index."""
    from toolchain.provision.cache_prefill import PIP_INDEX
    from toolchain.site import Mirror, Proxy

    manifest = bundle.manifest
    return replace(
        site,
        proxy=Proxy(),
        apt_mirrors=tuple(Mirror(*pair) for pair in manifest.mirrors),
        url_mirrors=(),
        git_mirrors=(),
        local_images=(Mirror(manifest.base, manifest.base_image.reference),),
        pip_index=PIP_INDEX,
        pip_extra_indexes=(),
        registry="",
        offline=True,
    )


def _same_id(one: str, other: str) -> bool:
    return one.removeprefix("sha256:") == other.removeprefix("sha256:")


# -- export --


def _copy_recipes(site: SiteConfig, folder: Path) -> None:
    for number, source in enumerate(site.recipe_folders):
        for path in sorted(source.rglob("*.yaml")):
            target = folder / "recipes" / str(number) / path.relative_to(source)
            write_atomic(target, path.read_bytes())


def _save_base(engine: Engine, plan: Plan, site: SiteConfig, folder: Path) -> BundledImage:
    """Save the base under a name of our own, as a saved image forgets its digest."""
    reference = plan.base.pinned
    if plan.base.stand_in:
        return _save(engine, reference, folder, "images/base.tar", lambda _text: None)
    present = next(
        (one for one in (site.mirrored_image(reference), reference) if one and engine.image(one)), ""
    )
    facts = engine.image(present) if present else None
    if facts is None:
        raise HostError(f"the engine has no {reference}", hint=f"`docker pull {reference}`")
    tag = str(facts["Id"]).removeprefix("sha256:")[:12]
    with engine.guard(f"name the base {reference}"):
        engine.api.tag(present, _BASE_NAME, tag)
    return _save(engine, f"{_BASE_NAME}:{tag}", folder, "images/base.tar", lambda _text: None)


def _save(engine: Engine, reference: str, folder: Path, file: str, say: Say) -> BundledImage:
    say(f"image {reference}")
    facts = engine.image(reference)
    if facts is None:
        raise HostError(f"the engine has no image {reference}")
    with engine.guard(f"save the image {reference}"), stream_atomic(folder / file) as stream:
        for part in engine.api.get_image(reference):
            stream.write(part)
    return BundledImage(file=file, reference=reference, id=str(facts["Id"]))


def _fetch(one: Download, site: SiteConfig, target: Path) -> None:
    """Get a download; whether a key has its fingerprint is checked where it is used."""
    if target.exists():
        return
    found = origins.download(one.url, site, target)
    if not one.fingerprint and found != one.sha256:
        raise HostError(
            f"{one.url} has another content than was locked", why=f"sha256 {found}, expected {one.sha256}"
        )


def _fetch_packages(engine: Engine, plan: Plan, site: SiteConfig, folder: Path) -> None:
    """Packages, lists and wheels from a container: unpacked, so that each file is in the manifest."""
    archive = folder / "packages.tar"
    fetch_packages(engine, plan, site, archive)
    places = {"archives": "apt/archives", "lists": "apt/lists", "wheels": "wheels"}
    with tarfile.open(archive, mode="r:") as packed:
        for member in packed:
            parts = PurePosixPath(member.name).parts
            stream = packed.extractfile(member) if member.isfile() else None
            if stream is None or len(parts) < 3 or parts[1] not in places:
                continue
            with stream_atomic(folder.joinpath(places[parts[1]], *parts[2:])) as kept:
                _copy(stream, kept)
    disk.remove(archive)


def _copy(source: Any, target: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(_CHUNK_BYTES):
        digest.update(chunk)
        target.write(chunk)
    return digest.hexdigest()


def _listed(folder: Path) -> list[BundledFile]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return [
        BundledFile(
            path=path.relative_to(folder).as_posix(), size=path.stat().st_size, sha256=sha256_file(path)
        )
        for path in paths
    ]


def _write(manifest: Manifest, folder: Path, output: Path) -> None:
    """The tar: manifest first, files sorted, owned by root, dated 1970."""
    text = json.dumps(manifest.model_dump(), indent=1, sort_keys=True).encode() + b"\n"
    write_atomic(folder / MANIFEST, text)
    with (
        stream_atomic(output) as stream,
        tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in [MANIFEST, *(one.path for one in manifest.files)]:
            member = tarfile.TarInfo(path)
            member.size, member.mode = (folder / path).stat().st_size, 0o644
            with (folder / path).open("rb") as content:
                archive.addfile(member, content)


# -- import --


def _read_manifest(
    archive: tarfile.TarFile, member: tarfile.TarInfo | None, path: Path
) -> tuple[Manifest, bytes]:
    if member is None or member.name != MANIFEST or not member.isfile() or member.size > _MOST_MANIFEST_BYTES:
        raise _broken(path, f"it does not begin with {MANIFEST}")
    stream = archive.extractfile(member)
    text = stream.read() if stream is not None else b""
    try:
        return Manifest.model_validate_json(text), text
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(one) for one in first["loc"])
        raise _broken(path, f"its manifest is wrong: {place}: {first['msg']}") from error


def _manifest_of(path: Path) -> Manifest:
    try:
        with path.open("rb") as stream, tarfile.open(fileobj=stream, mode="r:") as archive:
            return _read_manifest(archive, archive.next(), path)[0]
    except tarfile.TarError as error:
        raise _broken(path, f"it is no tar, or was cut off: {error}") from error


def _unpack(
    archive: tarfile.TarFile, members: Iterator[tarfile.TarInfo], manifest: Manifest, target: Path, path: Path
) -> None:
    """Each member is one of the manifest's files, once, whole, and with its sha256."""
    waiting = {one.path: one for one in manifest.files}
    if len(waiting) != len(manifest.files):
        raise _broken(path, "its manifest names a file twice")
    for member in members:
        known = waiting.pop(member.name, None)
        stream = archive.extractfile(member) if member.isreg() else None
        if known is None or stream is None:
            raise _broken(path, f"it holds {member.name!r}, which its manifest does not name as a file")
        with stream_atomic(target / known.path) as kept:
            digest = _copy(stream, kept)
            if member.size != known.size or digest != known.sha256:
                raise _broken(path, f"{known.path} was changed: sha256 {digest}, expected {known.sha256}")
    if waiting:
        raise _broken(path, f"it lacks {counted(len(waiting), 'file')}, {min(waiting)} among them")
    needed = {LOCK, manifest.base_image.file, *(one.file for one in manifest.components)}
    if absent := needed - {one.path for one in manifest.files}:
        raise _broken(path, f"its manifest names no file {min(absent)}")


def _broken(path: Path, why: str) -> BadInputError:
    return BadInputError(
        "the bundle cannot be used",
        where=str(path),
        why=why,
        hint="copy it again, and compare sha256sum on both machines",
    )


def wheels(bundle: Bundle) -> Sequence[Path]:
    """The Python packages of a bundle."""
    return sorted((bundle.folder / "wheels").glob("*"))


def normal_project(file: str) -> str:
    """The normal name of the project that a wheel or source archive is of."""
    from packaging.utils import canonicalize_name, parse_sdist_filename, parse_wheel_filename

    try:
        return canonicalize_name(
            parse_wheel_filename(file)[0] if file.endswith(".whl") else parse_sdist_filename(file)[0]
        )
    except ValueError as error:
        raise UsageError(f"{file} is no Python package", why=re.sub(r"\s+", " ", str(error))) from error
