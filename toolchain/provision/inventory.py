"""What is in a built image, read back from it, and how that differs from what was locked.

A script runs in the image once, without network and without any right to change it. It needs a shell, find
and awk; packages are asked of dpkg or rpm where there is one, and found by their metadata for Python.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from compiler import BuildError, HostError
from toolchain.images.plan import UNRESOLVED, Pins, Plan, Run
from toolchain.images.steps import VENV

if TYPE_CHECKING:
    from toolchain.engine.client import Finished

PackageKind = Literal["deb", "rpm", "python"]
DifferenceKind = Literal["missing", "different", "not locked"]

_NOT_OURS = ("/dist-packages/", "/_vendor/")
"""Python packages there belong to packages of the distribution, or to another Python package."""
_SECONDS = 600.0
_SCRIPT = r"""
LC_ALL=C; export LC_ALL
section() { printf '\n== %s\n' "$1"; }
section os
cat /etc/os-release 2>/dev/null
if command -v dpkg-query >/dev/null; then
    section deb
    format='${db:Status-Status}\t${Package}\t${Version}\t${Architecture}\t${source:Package}\n'
    dpkg-query --show --showformat="$format"
fi
if command -v rpm >/dev/null; then
    section rpm
    version='%|EPOCH?{%{EPOCH}:}|%{VERSION}-%{RELEASE}'
    rpm -qa --queryformat "installed\t%{NAME}\t$version\t%{ARCH}\t%{SOURCERPM}\n"
fi
section python
find / -xdev -type f -path '*.dist-info/METADATA' -print 2>/dev/null |
while IFS= read -r path; do
    awk -v path="$path" '
        /^\r?$/ { exit }
        /^Name: / && !name { name = substr($0, 7) }
        /^Version: / && !version { version = substr($0, 10) }
        END { sub(/\r$/, "", name); sub(/\r$/, "", version); printf "%s\t%s\t%s\n", name, version, path }
    ' "$path"
done
section files
while [ "$#" -gt 0 ] && [ "$1" != -- ]; do
    [ ! -f "$1" ] || sha256sum "$1"
    shift
done
section folders
for path in "$@"; do
    [ -d "$path" ] || continue
    find "$path" -xdev -type f -printf '%s\n' |
        awk -v path="$path" '{ n++; bytes += $1 } END { printf "%d\t%.0f\t%s\n", n, bytes, path }'
done
section end
"""


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package; `where` is the folder of a Python package, `source` what a deb was built from."""

    kind: PackageKind
    name: str
    version: str
    arch: str = ""
    source: str = ""
    where: str = ""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of the image: how many regular files it holds, and their bytes."""

    path: str
    files: int
    size: int


@dataclass(frozen=True, slots=True)
class ImageContents:
    """What an image contains.

    `os` are the fields of os-release(5); `files` maps paths of downloads to the sha256 that the image has;
    `commits` maps the git URLs of components to the commits that they were built from.
    """

    image: str
    id: str
    os: Mapping[str, str]
    packages: tuple[Package, ...]
    files: Mapping[str, str]
    folders: tuple[Folder, ...]
    commits: Mapping[str, str]
    labels: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Deviation:
    """One way in which an image is not what was locked or asked for; versions and hashes are texts."""

    kind: DifferenceKind
    what: str
    name: str
    expected: str
    found: str


class _Engine(Protocol):
    """What reading asks of an engine."""

    def image(self, reference: str) -> Mapping[str, object] | None: ...

    def run(
        self, image: str, argv: list[str], *, timeout: float | None = None, **options: object
    ) -> Finished: ...


def read_inventory(engine: _Engine, image: str, plan: Plan | None = None) -> ImageContents:
    """Read back what is in `image`; with its `plan` also the downloads, prefixes and commits that it names.

    Raises HostError when the engine has no such image and BuildError when nothing can be read from it.
    """
    facts = engine.image(image)
    if facts is None:
        raise HostError(f"the engine has no image {image}", hint="build it first: `tk image build NAME`")
    files = sorted({one.path for one in plan.downloads}) if plan else []
    folders = sorted(_prefixes(plan)) if plan else []
    argv = ["sh", "-c", _SCRIPT, "inventory", *files, "--", *folders]
    host = {"network_mode": "none", "read_only": True, "cap_drop": ["ALL"], "cap_add": ["DAC_READ_SEARCH"]}
    done = engine.run(image, argv, timeout=_SECONDS, user="0:0", host=host)
    if done.code != 0 or "\n== end" not in done.output:
        raise BuildError(
            f"cannot read back what is in {image}",
            why=done.output.strip()[-500:] or f"the script ends with status {done.code}",
            hint="the image needs a POSIX shell, find and awk",
        )
    commits = dict(_commits(engine, plan)) if plan else {}
    return parse_inventory(done.output, image, str(facts.get("Id", "")), _labels(facts), commits)


def parse_inventory(
    text: str, image: str, identity: str, labels: Mapping[str, str], commits: Mapping[str, str]
) -> ImageContents:
    """The inventory that the script's output describes; sorted, each entry once."""
    sections = _sections(text)
    packages = {
        *_system_packages("deb", sections.get("deb", ())),
        *_system_packages("rpm", sections.get("rpm", ())),
        *_python_packages(sections.get("python", ())),
    }
    order = sorted(packages, key=lambda one: (one.kind, one.name, one.version, one.arch, one.where))
    return ImageContents(
        image=image,
        id=identity,
        os=dict(_os_fields(sections.get("os", ()))),
        packages=tuple(order),
        files=dict(sorted((path, digest) for digest, path in _pairs(sections.get("files", ())))),
        folders=tuple(sorted(_folders(sections.get("folders", ())), key=lambda one: one.path)),
        commits=dict(sorted(commits.items())),
        labels=dict(sorted(labels.items())),
    )


def compare(
    inventory: ImageContents, plan: Plan, pins: Pins | None = None, *, base: ImageContents | None = None
) -> tuple[Deviation, ...]:
    """How an image differs from its lock, or without one from what its plan asks for by version.

    With the `base`'s inventory, packages that neither the base nor the lock has are found, too.
    """
    found = [*_asked(inventory, plan)]
    if pins is not None:
        found += [*_locked_packages(inventory, pins), *_locked_sources(inventory, plan, pins)]
        if base is not None:
            found += _beside(inventory, pins, base)
    return tuple(sorted(set(found), key=lambda one: (one.what, one.name, one.kind)))


def _prefixes(plan: Plan) -> Iterator[str]:
    for need in plan.needs:
        yield from need.provides
    if plan.resolution is not None:
        yield from plan.resolution.prefixes.values()


def _commits(engine: _Engine, plan: Plan) -> Iterator[tuple[str, str]]:
    """What the images of components say they were built from."""
    for need in plan.needs:
        facts = engine.image(need.reference)
        labels = _labels(facts) if facts is not None else {}
        if need.git and labels.get("tk.commit"):
            yield need.git[0].url, labels["tk.commit"]
        for one in labels.get("tk.clones", "").split():
            url, _, commit = one.rpartition("@")
            yield url, commit


def _labels(facts: Mapping[str, object]) -> dict[str, str]:
    configuration = facts.get("Config")
    labels = configuration.get("Labels") if isinstance(configuration, dict) else None
    return {str(key): str(value) for key, value in labels.items()} if isinstance(labels, dict) else {}


def _sections(text: str) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for part in text.split("\n== ")[1:]:
        name, _, body = part.partition("\n")
        found[name.strip()] = tuple(line for line in body.splitlines() if line.strip())
    return found


def _os_fields(lines: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for line in lines:
        name, equals, value = line.partition("=")
        if equals:
            yield name, value.strip("\"'")


def _system_packages(kind: PackageKind, lines: tuple[str, ...]) -> Iterator[Package]:
    for line in lines:
        parts = line.split("\t")
        if len(parts) == 5 and parts[0] == "installed":
            yield Package(kind, parts[1], parts[2], parts[3], parts[4])


def _python_packages(lines: tuple[str, ...]) -> Iterator[Package]:
    from packaging.utils import canonicalize_name

    for line in lines:
        name, version, path = [*line.split("\t"), "", ""][:3]
        if name and version and not any(part in path for part in _NOT_OURS):
            yield Package(
                "python", canonicalize_name(name), version, where=path.rpartition("/")[0].rpartition("/")[0]
            )


def _pairs(lines: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for line in lines:
        digest, _, path = line.partition("  ")
        if path:
            yield digest, path


def _folders(lines: tuple[str, ...]) -> Iterator[Folder]:
    for line in lines:
        files, size, path = line.split("\t", 2)
        yield Folder(path, int(files), int(size))


def _asked(inventory: ImageContents, plan: Plan) -> Iterator[Deviation]:
    """Asked for in the recipes: an apt package by name or version, a download by its sha256."""
    installed = _versions(inventory, "deb", "rpm")
    elsewhere = _for_downloads(plan)
    for asked in plan.apt:
        package, _, version = asked.partition("=")
        if package not in elsewhere:
            yield from _checked("apt package", package, version, installed.get(package.partition(":")[0], ()))
    yield from _files(inventory, {one.path: one.sha256 for one in plan.downloads})


def _for_downloads(plan: Plan) -> set[str]:
    """Packages that nothing but the stage of downloads installs, of which only downloads are in the image."""
    words: dict[bool, set[str]] = {True: set(), False: set()}
    for stage in plan.stages:
        for one in stage.instructions:
            commands = one.commands if isinstance(one, Run) else ()
            words[stage.name == "fetched"] |= {word for command in commands for word in command}
    return {one.partition("=")[0] for one in words[True] - words[False]}


def _files(inventory: ImageContents, expected: Mapping[str, str]) -> Iterator[Deviation]:
    """A download that stays a file has the content that was named; archives are unpacked and gone."""
    for path, digest in expected.items():
        found = inventory.files.get(path)
        if found is not None and digest not in (UNRESOLVED, found):
            yield Deviation("different", "file", path, digest, found)


def _locked_packages(inventory: ImageContents, pins: Pins) -> Iterator[Deviation]:
    installed = _versions(inventory, "deb", "rpm")
    for package, version in pins.apt.items():  # what only an earlier stage needed is not in the image
        if found := installed.get(package.partition(":")[0]):
            yield from _checked("apt package", package, version, found)
    python = _versions(inventory, "python")
    for package, (version, _) in pins.pip.items():
        yield from _checked("Python package", package, version, python.get(package, ()))


def _locked_sources(inventory: ImageContents, plan: Plan, pins: Pins) -> Iterator[Deviation]:
    for kind_pins in pins.needs.values():
        for url, commit in kind_pins.git.items():
            found = inventory.commits.get(url, "")
            if found and found != commit:
                yield Deviation("different", "commit", url, commit, found)
    yield from _files(
        inventory, {one.path: pins.downloads.get(one.url, UNRESOLVED) for one in plan.downloads}
    )
    expected = pins.base_digest
    found = inventory.labels.get("org.opencontainers.image.base.digest", "")
    if expected and found and found != expected:
        yield Deviation("different", "base", plan.base.reference, expected, found)


def _beside(inventory: ImageContents, pins: Pins, base: ImageContents) -> Iterator[Deviation]:
    """Packages that are in the image, and neither in its base nor in the lock.

    Of Python packages those of the image's own environment: an interpreter brings some of its own.
    """
    old = {(one.kind, one.name) for one in base.packages}
    locked = {one.partition(":")[0] for one in pins.apt}
    for one in inventory.packages:
        if (one.kind, one.name) in old or one.name in (pins.pip if one.kind == "python" else locked):
            continue
        if one.kind == "python" and not one.where.startswith(f"{VENV}/"):
            continue
        yield Deviation("not locked", _WORDS[one.kind], one.name, "", one.version)


_WORDS: Mapping[PackageKind, str] = {"deb": "apt package", "rpm": "rpm package", "python": "Python package"}


def _versions(inventory: ImageContents, *kinds: PackageKind) -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for one in inventory.packages:
        if one.kind in kinds:
            found[one.name] = (*found.get(one.name, ()), one.version)
    return found


def _checked(what: str, name: str, expected: str, found: tuple[str, ...]) -> Iterator[Deviation]:
    if not found:
        yield Deviation("missing", what, name, expected, "")
    elif expected and expected not in found:
        yield Deviation("different", what, name, expected, ", ".join(found))
