"""What an image is made of, as data: instructions, files, downloads, and the key that names all of it.

A plan is made by `planner.plan_image`, printed by `render.dockerfile` and read back by `parse_back`. Words in
it are literal: nothing in a plan is expanded by a shell or by the builder.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from toolchain.recipes.resolve import Resolution

Command = tuple[str, ...]
"""One program with its arguments; the renderer quotes each word."""

UNRESOLVED = "unresolved"
"""Stands where a digest, checksum or commit is not known yet."""

WHOLE_COMMIT = 40
"""Hex digits of a commit that is not cut."""

SITE_SECRET = "tk-site"  # noqa: S105 - the id of a secret, not one
"""Id of the build secret with the site's mirrors and proxy, as `NAME=value` lines; may be absent or empty."""
CA_SECRET = "tk-ca"  # noqa: S105
"""Id of the build secret with the site's CA bundle (PEM); may be absent or empty."""

PATH_DEFAULT = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Mount:
    """What a `RUN` sees beside its stage: a cache kept between builds, a secret, a file of the context.

    `source` of a bind mount is a path in the context, or in `from_stage`; images that name the same
    cache `id` share it. `shared`: a cache that several builds may write at the same time.
    """

    kind: Literal["cache", "secret", "bind"]
    target: str
    id: str = ""
    source: str = ""
    from_stage: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class From:
    """Begins a stage on an image or on an earlier stage.

    `mirror` is where a site gets the same image; it is what is written, and does not count in the plan's key.
    """

    image: str
    stage: str
    mirror: str = ""


@dataclass(frozen=True, slots=True)
class Arg:
    """A build argument with its default."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class Env:
    """Environment variables of the image, with literal values."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class EnvPath:
    """A search path of the image: `entries` before what the base has (for PATH: before the usual default)."""

    name: str
    entries: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """Commands in one layer, joined by `&&`."""

    commands: tuple[Command, ...]
    mounts: tuple[Mount, ...] = ()
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class Copy:
    """Files from the context, from an earlier stage or from a component image."""

    sources: tuple[str, ...]
    target: str
    from_stage: str = ""


@dataclass(frozen=True, slots=True)
class Workdir:
    """The current folder of what follows."""

    path: str


@dataclass(frozen=True, slots=True)
class User:
    """Who runs what follows, as `uid:gid`."""

    user: str


@dataclass(frozen=True, slots=True)
class Label:
    """OCI labels."""

    pairs: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Entrypoint:
    """The program that a container starts with its command as arguments; nothing takes the base's away."""

    argv: Command


@dataclass(frozen=True, slots=True)
class Cmd:
    """What a container runs when its user names nothing."""

    argv: Command


Instruction = From | Arg | Env | EnvPath | Run | Copy | Workdir | User | Label | Entrypoint | Cmd


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage: `instructions` begin with its From; `why` says in a sentence what it is for."""

    name: str
    instructions: tuple[Instruction, ...]
    why: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class ContextFile:
    """A file of the build context; `path` is relative to it."""

    path: str
    data: bytes
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Download:
    """A file fetched during the build; `sha256` is 64 hex digits or `unresolved`; `path` is where it lies.

    is_key: it holds signing keys. fingerprint: the one key that is taken from it, in place of a `sha256`.
    """

    url: str
    sha256: str
    path: str
    is_key: bool = False
    fingerprint: str = ""

    @property
    def is_pinned(self) -> bool:
        """Whether it is known what must come."""
        return bool(self.fingerprint) or self.sha256 != UNRESOLVED


@dataclass(frozen=True, slots=True)
class GitTree:
    """A git tree: `ref` is a tag or branch, `commit` 40 hex digits, the first of them, or `unresolved`."""

    url: str
    ref: str
    commit: str
    path: str


@dataclass(frozen=True, slots=True)
class SmokeTest:
    """A command that shows that the image works: it ends with status 0 and its output contains `expect`.

    `needs_device`: it can pass only with a GPU.
    """

    name: str
    argv: Command
    needs_device: bool = False
    expect: str = ""


@dataclass(frozen=True, slots=True)
class BaseImage:
    """The image that a plan starts from; `digest` is `sha256:<64 hex>` or `unresolved`."""

    reference: str
    digest: str = UNRESOLVED
    os: str = ""
    stand_in: bool = False

    @property
    def pinned(self) -> str:
        """The reference, with the digest where it is known."""
        return self.reference if self.digest == UNRESOLVED else f"{self.reference}@{self.digest}"


@dataclass(frozen=True, slots=True)
class Deb:
    """The file of an apt package of a vendor's repository: where it was when it was locked; its sha256."""

    url: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Pins:
    """What a lock fixes for one plan; each mapping is keyed as the plan names the thing.

    `base_digest` is `sha256:...` or empty; `base_reference` is the fallback that was taken for the recipe's
    base, or empty; `snapshot` is when the system's own archives had the versions (`YYYYMMDDTHHMMSSZ`), or
    empty; `apt` maps package -> version; `debs` maps package -> its file, for those that no snapshot keeps;
    `pip` maps package -> (version, sha256s); `git` maps url -> commit, `downloads` maps url -> sha256;
    `needs` maps component -> its pins.
    `first_use` are the urls of `git` and `downloads` for which nobody but the server itself vouched.
    """

    base_digest: str = ""
    base_reference: str = ""
    snapshot: str = ""
    apt: Mapping[str, str] = field(default_factory=dict)
    debs: Mapping[str, Deb] = field(default_factory=dict)
    pip: Mapping[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    git: Mapping[str, str] = field(default_factory=dict)
    downloads: Mapping[str, str] = field(default_factory=dict)
    needs: Mapping[str, Pins] = field(default_factory=dict)
    first_use: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Published:
    """Where an image that was built from a plan lies ready to be pulled, as the lock says.

    `reference` is `registry/name[:tag]` and `digest` the manifest's there (`sha256:...`); both are empty when
    the lock names no image. `by_name`: without a digest a registry may be asked by the plan's name.
    """

    reference: str = ""
    digest: str = ""
    by_name: bool = True


def settled(own: str, locked: str | None) -> str:
    """What a recipe says, or what a lock says where the recipe leaves it open."""
    return locked if own == UNRESOLVED and locked else own


def settled_commit(own: str, locked: str | None) -> str:
    """As `settled`; a recipe that gives the first digits of a commit leaves the rest open."""
    return locked if locked and len(own) < WHOLE_COMMIT else own


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Something that must be known before a build: what it is and how it gets known."""

    what: str
    hint: str


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that decides what an image contains.

    `repository` and `tag` name the image, `apt` and `pip` list what it asks for (without what those pull in),
    `needs` are component images that are built first and copied in; `provides` are the folders that others
    copy from this one, `python_paths` those among them with packages for the system's Python. `published`, as
    `resolution`, decides nothing about the content.
    """

    name: str
    repository: str
    tag: str
    base: BaseImage
    stages: tuple[Stage, ...]
    files: tuple[ContextFile, ...] = ()
    downloads: tuple[Download, ...] = ()
    apt: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    git: tuple[GitTree, ...] = ()
    smoke: tuple[SmokeTest, ...] = ()
    needs: tuple[Plan, ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    provides: tuple[str, ...] = ()
    python_paths: tuple[str, ...] = ()
    resolution: Resolution | None = field(default=None, compare=False)
    published: Published = field(default=Published(), compare=False)

    @property
    def key(self) -> str:
        """64 hex digits of everything that decides the content: instructions, files, and components' keys."""
        content = {
            "stages": [[encode(one) for one in stage.instructions] for stage in self.stages],
            "files": [[one.path, hashlib.sha256(one.data).hexdigest(), one.mode] for one in self.files],
            "needs": [one.key for one in self.needs],
        }
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()

    @property
    def reference(self) -> str:
        """The image's name: `tk/rocm:5.4.3-dpcpp-2022-12-<first 12 digits of the key>`."""
        return f"{self.repository}:{self.tag}-{self.key[:12]}"

    @property
    def section(self) -> str:
        """What its section in a lock is called, as `Resolution.section`."""
        return self.name if self.resolution is None else self.resolution.section

    @property
    def typed(self) -> str:
        """What stands for this plan on a command line, whether or not a lock has its section."""
        added = None if self.resolution is None else self.resolution.additions
        if not added:
            return self.section
        return shlex.join([self.section.replace(f"+with-{added.digits}", ""), *added.words])

    @property
    def build_labels(self) -> tuple[tuple[str, str], ...]:
        """Labels added at the build (`docker build --label`): they name the key, so cannot be part of it."""
        stand_in = (("tk.stand-in", self.base.reference),) if self.base.stand_in else ()
        return (("tk.plan", self.key), ("tk.name", self.name), *stand_in)

    @property
    def secrets(self) -> tuple[str, ...]:
        """Ids of the build secrets that some step can use; each may be absent."""
        return tuple(sorted({one.id for run in self.runs() for one in run.mounts if one.kind == "secret"}))

    def runs(self) -> Iterator[Run]:
        """Every RUN of every stage, in order."""
        for stage in self.stages:
            for one in stage.instructions:
                if isinstance(one, Run):
                    yield one

    def unresolved(self, name: str = "") -> tuple[Unresolved, ...]:
        """What must be resolved before this plan and its components can be built; `name` is what to lock."""
        hint = f"`tk image lock {name or self.typed}` fetches it once and writes down what it is"
        found = [Unresolved(f"sha256 of {one.url}", hint) for one in self.downloads if not one.is_pinned]
        found += [
            Unresolved(f"commit of {one.ref} in {one.url}", hint)
            for one in self.git
            if one.commit == UNRESOLVED
        ]
        for need in self.needs:
            found += need.unresolved(name or self.typed)
        return tuple(dict.fromkeys(found))


def encode(instruction: Instruction | Mount) -> dict[str, Any]:
    """An instruction as JSON values, without what says why and without mirrors: equal means equal content."""
    fields = {
        one.name: _encoded(getattr(instruction, one.name))
        for one in dataclasses.fields(instruction)
        if one.compare and one.name != "mirror"
    }
    return {"": type(instruction).__name__, **fields}


def _encoded(value: Any) -> Any:
    if isinstance(value, Mount):
        return encode(value)
    return [_encoded(one) for one in value] if isinstance(value, tuple) else value
