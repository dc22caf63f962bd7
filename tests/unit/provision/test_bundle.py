"""Bundles as files: written whole, read back only when every byte is what the manifest says."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compiler import BadInputError, HostError, UsageError
from toolchain.images.lock.file import Lock, LockedBuild, LockedImage, lock_text, read_lock, write_lock
from toolchain.images.named import plan_named
from toolchain.images.plan import Pins
from toolchain.images.planner import plan_image
from toolchain.images.selection import Selection
from toolchain.provision import bundle as bundles
from toolchain.provision.bundle import (
    MANIFEST,
    Bundle,
    BundledImage,
    Manifest,
    bundle_folder,
    import_bundle,
    imported_bundle,
    load_images,
    normal_project,
    offline_site,
    read_bundle,
    section_of,
)
from toolchain.provision.bundled_recipes import use_recipes
from toolchain.provision.cache_prefill import _dockerfile, _parts
from toolchain.recipes.catalog import load_catalog
from toolchain.recipes.resolve import resolve
from toolchain.site import Mirror, SiteConfig

ID = "sha256:" + "1" * 64
SECTION = LockedImage("a" * 64, "debian:bookworm", Pins(apt={"gcc": "12"}))
FILES = {
    "images/base.tar": b"an image",
    "apt/archives/gcc_4%3a12.2.0-3_amd64.deb": b"a package",
    "apt/lists/deb.example.com_InRelease": b"a list",
    "downloads/" + "b" * 64: b"a download",
    "wheels/tk_demo-1.0-py3-none-any.whl": b"a wheel",
    "tk.lock": lock_text(Lock({"cpu": SECTION})).encode(),
}


@pytest.fixture(autouse=True)
def own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))


def make(folder: Path, *, plan: str = "e" * 64) -> tuple[Path, Manifest]:
    """A bundle of the files above, written as an export writes it."""
    source = folder / "source"
    for name, data in FILES.items():
        path = source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    manifest = Manifest(
        format=1, name="cpu", plan=plan, base="debian:bookworm@sha256:" + "2" * 64,
        base_image=BundledImage(file="images/base.tar", reference="tk-bundle/base:111111111111", id=ID),
        components=[], mirrors=[["http://deb.example.com/debian", "http://mirror.example.com/debian"]],
        files=bundles._listed(source),
    )  # fmt: skip
    output = folder / "cpu.tar"
    bundles._write(manifest, source, output)
    return output, manifest


def test_round_trip(tmp_path: Path) -> None:
    path, manifest = make(tmp_path)
    found = read_bundle(path, tmp_path / "out")
    assert found.manifest == manifest
    for name, data in FILES.items():
        assert (found.folder / name).read_bytes() == data
    assert section_of(found).pins.apt == {"gcc": "12"}


def test_the_same_bytes(tmp_path: Path) -> None:
    first, _ = make(tmp_path / "a")
    second, _ = make(tmp_path / "b")
    assert first.read_bytes() == second.read_bytes()


def members(path: Path) -> list[tuple[tarfile.TarInfo, bytes]]:
    with tarfile.open(path) as archive:
        return [(one, (archive.extractfile(one) or io.BytesIO()).read()) for one in archive]


def rewrite(path: Path, change: Callable[[list[tuple[tarfile.TarInfo, bytes]]], None]) -> None:
    found = members(path)
    change(found)
    with tarfile.open(path, "w") as archive:
        for member, data in found:
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))


def _of(found: list[tuple[tarfile.TarInfo, bytes]], name: str) -> int:
    return next(index for index, (member, _) in enumerate(found) if member.name == name)


def flip(found: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    index = _of(found, "wheels/tk_demo-1.0-py3-none-any.whl")
    found[index] = (found[index][0], b"another")


def drop(found: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    found.pop(_of(found, "images/base.tar"))


def manifest_last(found: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    found.append(found.pop(0))


def extra(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> Any:
    def change(found: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        member = tarfile.TarInfo(name)
        member.type, member.linkname = kind, link
        found.append((member, b"x" if kind == tarfile.REGTYPE else b""))

    return change


def replaced_by_link(found: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    index = _of(found, "tk.lock")
    member = tarfile.TarInfo("tk.lock")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    found[index] = (member, b"")


def in_manifest(change: Callable[[dict[str, Any]], None]) -> Any:
    def apply(found: list[tuple[tarfile.TarInfo, bytes]]) -> None:
        document = json.loads(found[0][1])
        change(document)
        found[0] = (found[0][0], json.dumps(document).encode())

    return apply


def _climb(document: dict[str, Any]) -> None:
    document["files"][0]["path"] = "../../escaped"


HOSTILE = {
    "a changed file": flip,
    "a missing file": drop,
    "manifest last": manifest_last,
    "an extra file": extra("more"),
    "an absolute path": extra("/etc/cron.d/x"),
    "a climbing path": extra("../escaped"),
    "a link": extra("link", tarfile.SYMTYPE, "/etc/passwd"),
    "a hard link": extra("link", tarfile.LNKTYPE, "tk.lock"),
    "a device": extra("zero", tarfile.CHRTYPE),
    "a folder": extra("folder", tarfile.DIRTYPE),
    "the same file twice": extra("tk.lock"),
    "a link in place of a file": replaced_by_link,
    "a climbing path in the manifest": in_manifest(_climb),
    "an absolute path in the manifest": in_manifest(lambda d: d["files"][0].update(path="/etc/x")),
    "a hidden path in the manifest": in_manifest(lambda d: d["files"][0].update(path=".ssh/x")),
    "a file twice in the manifest": in_manifest(lambda d: d["files"].append(d["files"][0])),
    "another size": in_manifest(lambda d: d["files"][0].update(size=1)),
    "an unknown key": in_manifest(lambda d: d.update(run="id")),
    "another format": in_manifest(lambda d: d.update(format=2)),
    "an option as reference": in_manifest(lambda d: d["base_image"].update(reference="--privileged")),
    "a line break in a reference": in_manifest(lambda d: d["base_image"].update(reference="a:1\nRUN id")),
    "a mirror that is a command": in_manifest(lambda d: d.update(mirrors=[["http://a", "$(id)"]])),
    "a base that is not there": in_manifest(lambda d: d["base_image"].update(file="images/other.tar")),
    "a name that is a path": in_manifest(lambda d: d.update(name="../x")),
    "a plan that is a path": in_manifest(lambda d: d.update(plan="../x")),
    "no JSON": lambda found: found.__setitem__(0, (found[0][0], b"{")),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_refused(tmp_path: Path, case: str) -> None:
    path, _ = make(tmp_path)
    rewrite(path, HOSTILE[case])
    with pytest.raises(BadInputError) as caught:
        read_bundle(path, tmp_path / "out" / "here")
    assert caught.value.why
    assert not (tmp_path / "out" / "here" / MANIFEST).exists()
    assert not list(tmp_path.rglob("*escaped*"))


@pytest.mark.parametrize("data", [b"", b"no tar", b"\0" * 10240, b"\x1f\x8b\x08" + b"\0" * 600])
def test_no_bundle(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "x.tar"
    path.write_bytes(data)
    with pytest.raises(BadInputError):
        read_bundle(path, tmp_path / "out")


@pytest.mark.parametrize("part", [0.2, 0.4, 0.6])
def test_cut_off(tmp_path: Path, part: float) -> None:
    path, _ = make(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(BadInputError):
        read_bundle(path, tmp_path / "out")


class Engine:
    """An engine that loads what it is told to."""

    kind = "docker"
    endpoint = "x"

    def __init__(self, identity: str = ID) -> None:
        self.identity = identity
        self.loaded: list[bytes] = []
        self.api = SimpleNamespace(load_image=self.load)

    def load(self, stream: Any) -> list[str]:
        self.loaded.append(stream.read())
        return []

    def image(self, _reference: str) -> dict[str, str] | None:
        return {"Id": self.identity} if self.loaded else None

    def guard(self, _doing: str) -> Any:
        import contextlib

        return contextlib.nullcontext()


def test_import(tmp_path: Path) -> None:
    path, manifest = make(tmp_path)
    engine: Any = Engine()
    lock = tmp_path / "project" / "tk.lock"
    found = import_bundle(engine, path, lock)
    assert engine.loaded == [b"an image"]
    assert found.folder == bundle_folder(manifest)
    written = read_lock(lock)
    assert written is not None
    assert written.images["cpu"].pins.apt == {"gcc": "12"}
    import_bundle(engine, path, lock)  # again is no error
    assert len(engine.loaded) == 1


def test_import_keeps_the_projects_other_images_and_refuses_other_pins(tmp_path: Path) -> None:
    path, _ = make(tmp_path)
    lock = tmp_path / "tk.lock"
    write_lock(lock, Lock({"other": SECTION}))
    engine: Any = Engine()
    import_bundle(engine, path, lock)
    assert set((read_lock(lock) or Lock()).images) == {"cpu", "other"}
    write_lock(lock, Lock({"cpu": LockedImage("a" * 64, "debian:bookworm", Pins(apt={"gcc": "13"}))}))
    before = lock.read_bytes()
    with pytest.raises(BadInputError, match="other pins"):
        import_bundle(engine, path, lock)
    assert lock.read_bytes() == before


def test_import_keeps_what_others_lock_while_it_loads(tmp_path: Path) -> None:
    path, _ = make(tmp_path)
    lock = tmp_path / "tk.lock"

    class Slow(Engine):
        def load(self, stream: Any) -> list[str]:
            write_lock(lock, Lock({"other": SECTION}))
            return super().load(stream)

    engine: Any = Slow()
    import_bundle(engine, path, lock)
    assert set((read_lock(lock) or Lock()).images) == {"cpu", "other"}


def test_an_image_that_is_another_one(tmp_path: Path) -> None:
    path, _ = make(tmp_path)
    engine: Any = Engine("sha256:" + "9" * 64)
    with pytest.raises(BadInputError, match="is not the image"):
        load_images(engine, read_bundle(path, tmp_path / "out"))


def test_a_bundle_is_found_by_its_plan_only(tmp_path: Path) -> None:
    plan = plan_image(resolve("cpu", load_catalog()))
    with pytest.raises(HostError, match="no bundle was imported"):
        imported_bundle(plan)
    path, _ = make(tmp_path, plan=plan.key)
    engine: Any = Engine()
    import_bundle(engine, path, tmp_path / "tk.lock")
    assert imported_bundle(plan).manifest.plan == plan.key


def imported(tmp_path: Path) -> Bundle:
    return read_bundle(make(tmp_path)[0], tmp_path / "out")


def test_the_offline_site(tmp_path: Path) -> None:
    site = offline_site(
        SiteConfig(registry="r.example.com", url_mirrors=(Mirror("a", "b"),)), imported(tmp_path)
    )
    assert site.mirrored_image("debian:bookworm@sha256:" + "2" * 64) == "tk-bundle/base:111111111111"
    assert site.registry == ""
    assert site.build_settings().decode().splitlines() == [
        "PIP_INDEX_URL=file:///var/cache/tk-pip/bundle/simple",
        "offline=yes",
        "apt_mirror=http://deb.example.com/debian http://mirror.example.com/debian",
    ]


def test_what_goes_into_the_caches(tmp_path: Path) -> None:
    found = imported(tmp_path)
    (part,) = _parts(found)
    assert {one.path for one in part} == {
        "prefill/var/cache/apt/archives/gcc_4%3a12.2.0-3_amd64.deb",
        "prefill/var/lib/apt/lists/deb.example.com_InRelease",
        f"prefill/var/cache/tk-downloads/{'b' * 64}",
        "prefill/var/cache/tk-pip/bundle/wheels/tk_demo-1.0-py3-none-any.whl",
        "prefill/var/cache/tk-pip/bundle/simple/tk-demo/index.html",
    }
    text = _dockerfile(plan_image(resolve("cpu-sycl", load_catalog())), found, part)
    assert text.startswith("FROM tk-bundle/base:111111111111\nRUN --mount=type=cache,id=tk-apt-debian-12,")
    assert "target=/var/cache/tk-pip" in text
    assert "cp -R /prefill/var/lib/apt/lists/. /var/lib/apt/lists/" in text


def test_large_bundles_go_in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from toolchain.provision import cache_prefill

    monkeypatch.setattr(cache_prefill, "_MOST_BYTES", 10)
    parts = list(_parts(imported(tmp_path)))
    assert len(parts) == 4
    assert sum(len(part) for part in parts) == 5


def test_names_of_python_packages() -> None:
    assert normal_project("Tk_Demo-1.0-py3-none-any.whl") == "tk-demo"
    assert normal_project("demo.x-1.0.tar.gz") == "demo-x"
    with pytest.raises(UsageError):
        normal_project("what.zip.exe")


ACME = """\
stack: acme
title: ACME
vendor: none
name: "acme-{version}"
rows:
  - version: "2.0"
    bases: [{system: debian-12, reference: "acme.example/base:2.0", source: us}]
    provides: {acme: "2.0"}
    prefixes: {acme: /opt/acme}
    sources: {provides: us}
"""


def with_recipes(folder: Path) -> tuple[Bundle, Path]:
    """A bundle of a site's own stack that was imported, and the project whose lock has its section."""
    recipes = folder / "bundle" / "recipes" / "0"
    (recipes / "stacks").mkdir(parents=True)
    (recipes / "stacks" / "acme.yaml").write_text(ACME)
    resolution = resolve("acme-2.0", load_catalog([recipes]))
    apt = dict.fromkeys(plan_image(resolution).apt, "1")
    pins = Pins(base_digest="sha256:" + "2" * 64, apt=apt)
    section = LockedImage(resolution.recipe_hash, "acme.example/base:2.0", pins)
    manifest = make(folder / "made", plan=plan_image(resolution, lock=pins).key)[1]
    lock = Lock({"acme-2.0": section})
    (folder / "bundle" / "tk.lock").write_text(lock_text(lock))
    project = folder / "project"
    project.mkdir()
    write_lock(project / "tk.lock", lock)
    return Bundle(folder / "bundle", manifest.model_copy(update={"name": "acme-2.0"})), project


def test_recipes_of_a_bundle_go_into_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, project = with_recipes(tmp_path)
    monkeypatch.chdir(project)
    done = use_recipes(found, project)
    assert (done.fits, done.problem, done.lines) == (True, "", "")
    assert done.written == project / "site.yaml"
    (folder,) = done.copied
    assert folder.is_relative_to(project)
    assert (folder / "stacks" / "acme.yaml").read_text() == ACME
    assert plan_named("acme-2.0", Selection(lock="locked")).plan.key == found.manifest.plan
    again = use_recipes(found, project)
    assert (again.fits, again.copied, again.written) == (True, (), None)


def test_a_site_file_that_is_there_is_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found, project = with_recipes(tmp_path)
    monkeypatch.chdir(project)
    site = project / "site.yaml"
    site.write_text("registry: registry.example.com/team\n")
    done = use_recipes(found, project)
    assert not done.fits
    assert site.read_text() == "registry: registry.example.com/team\n"
    site.write_text(site.read_text() + done.lines)  # as the command says
    assert plan_named("acme-2.0", Selection(lock="locked")).plan.key == found.manifest.plan


def test_import_keeps_the_image_that_the_lock_names(tmp_path: Path) -> None:
    path, _ = make(tmp_path)
    lock = tmp_path / "tk.lock"
    image = LockedBuild("registry.example.com/tk/cpu:12", "sha256:" + "3" * 64, "4" * 64)
    write_lock(lock, Lock({"cpu": replace(SECTION, built=image)}))
    engine: Any = Engine()
    import_bundle(engine, path, lock)
    assert (read_lock(lock) or Lock()).images["cpu"].built == image
