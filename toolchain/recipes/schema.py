"""What a recipe may say: one model for each kind of record, every field with its grammar.

Words: a *stack* is a vendor's base image in one or more versions; a *component* is added to any stack and
sees only what the stack *provides*; a *layer* is what either adds to the image; a *system* is an operating
system.
Texts with `{version}` and the like are filled in by catalog.py before anything is checked here.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from toolchain.recipes.grammar import (
    AbsolutePath,
    AptPackage,
    Arch,
    ArchivePath,
    Argument,
    Codename,
    Commit,
    Count,
    Date,
    DeviceAnswer,
    Digest,
    EnvName,
    EnvValue,
    Expression,
    Family,
    Fingerprint,
    Flag,
    GitRef,
    HadolintRule,
    Host,
    HttpsUrl,
    HttpUrl,
    Id,
    ImageReference,
    Level,
    LogLines,
    LogPattern,
    Name,
    NamePattern,
    PipPackage,
    RelativePath,
    RpmPackage,
    Sha256,
    Shape,
    Specifier,
    Suite,
    SystemName,
    Text,
    Vendor,
    Verdict,
    Version,
)

Words = Annotated[tuple[Argument, ...], Field(max_length=64)]


class Model(BaseModel):
    """A record: frozen, and without fields that the schema does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Condition(Model):
    """When something applies. All fields must hold; an empty condition always holds.

    has: what is chosen or provided (stack, component, `ubuntu`, `python` ...) and its version: a specifier
    as `packaging` reads it, or `any`. DPC++ is compared by release date. lacks: what is neither chosen nor
    provided. archs: at least one of these is asked for. unsupported_arch: an arch is asked for that the stack
    lacks.
    """

    has: dict[Name, Specifier] = {}
    lacks: tuple[Name, ...] = ()
    archs: tuple[Arch, ...] = ()
    unsupported_arch: Flag = False


class AptRepository(Model):
    """One apt source: written to a deb822 file of its own, signed by its own key.

    key_fingerprint: of the one key in the file `key` that is trusted; unlike the file's sha256 it stays the
    same when the key is renewed. key_source: where the fingerprint was seen.
    """

    name: Name
    uri: HttpsUrl
    suites: Annotated[tuple[Suite, ...], Field(min_length=1)]
    components: tuple[Name, ...] = ("main",)
    architectures: tuple[Name, ...] = ("amd64",)
    key: HttpsUrl
    key_sha256: Sha256 = "unresolved"
    key_fingerprint: Fingerprint | None = None
    key_source: Text | None = None
    pin_origin: Host | None = None
    pin_priority: Count | None = None

    @model_validator(mode="after")
    def _one_pin_with_its_source(self) -> AptRepository:
        if self.key_fingerprint is None:
            return self
        if self.key_sha256 != "unresolved":
            raise ValueError("give either `key_fingerprint` or `key_sha256`")
        if self.key_source is None:
            raise ValueError("`key_fingerprint` needs `key_source`: where it was seen")
        return self


class DownloadFile(Model):
    """A file from the web: checked by sha256, then unpacked into `path` or stored as it."""

    url: HttpsUrl
    sha256: Sha256 = "unresolved"
    path: AbsolutePath
    unpack: Literal["no", "tar", "deb"] = "no"
    strip: Count = 0
    source: Text


class Smoke(Model):
    """A test of the finished image: a program with arguments, or a built-in probe by name."""

    name: Name
    run: Annotated[tuple[Argument, ...], Field(max_length=32)] = ()
    probe: Name | None = None
    expect: Text | None = None
    needs_device: Flag = False

    @model_validator(mode="after")
    def _one_of_two(self) -> Smoke:
        if bool(self.run) == (self.probe is not None):
            raise ValueError("give either `run` or `probe`")
        if self.run and self.run[0].startswith("-"):
            raise ValueError("`run` begins with a program, not an option")
        return self


class Layer(Model):
    """What a stack or a component adds to an image, in the order of the fields.

    remove: files of the base that go first. apt, rpm: packages, by the family of the system. pip: packages
    into the image's own Python environment. path, libraries: put before PATH and LD_LIBRARY_PATH. exceptions:
    findings of hadolint that are meant here, each with the reason.
    """

    when: Condition = Condition()
    remove: tuple[AbsolutePath, ...] = ()
    repositories: tuple[AptRepository, ...] = ()
    apt: tuple[AptPackage, ...] = ()
    rpm: tuple[RpmPackage, ...] = ()
    pip: tuple[PipPackage, ...] = ()
    downloads: tuple[DownloadFile, ...] = ()
    env: dict[EnvName, EnvValue] = {}
    path: tuple[AbsolutePath, ...] = ()
    libraries: tuple[AbsolutePath, ...] = ()
    smoke: tuple[Smoke, ...] = ()
    exceptions: dict[HadolintRule, Text] = {}


class Licence(Model):
    """Under which terms something comes: an SPDX expression, or what its owner calls them.

    redistributable: whether all of it may be passed on to anybody. Where that was not found out, it says no.
    """

    name: Text
    redistributable: Flag
    source: Text


class Archive(Model):
    """One of a system's own archives of packages, without `http://`, and the service that keeps its past.

    `*.` before a domain stands for all its hosts, as the same archive has many.

    An archive as it was at a time is at `<snapshot>/<YYYYMMDDTHHMMSSZ>`.
    """

    original: ArchivePath
    snapshot: HttpUrl
    source: Text


class System(Model):
    """An operating system of a base image."""

    system: Name
    version: Version
    family: Family
    codename: Codename
    provides: dict[Name, Version] = {}
    prefixes: dict[Name, AbsolutePath] = {}
    install: tuple[Layer, ...] = ()
    archives: tuple[Archive, ...] = ()
    licence: Licence | None = None
    source: Text


class Fallback(Model):
    """An image in place of a base that its registry has no longer; `install` adds what it lacks."""

    reference: ImageReference
    digest: Digest = "unresolved"
    install: tuple[Layer, ...] = ()
    source: Text


class Base(Model):
    """One base image of a stack's version. `parameters` fill placeholders of the row.

    fallbacks: what locking takes, the first that there is, when the image itself is gone.
    """

    system: SystemName
    reference: ImageReference
    digest: Digest = "unresolved"
    provides: dict[Name, Version] = {}
    parameters: dict[Name, Version] = {}
    fallbacks: tuple[Fallback, ...] = ()
    source: Text


class Driver(Model):
    """The oldest kernel driver of the host that this version works with."""

    minimum: Version
    full: Version | None = None
    source: Text


class StackRow(Model):
    """One version of a vendor's stack. The first of `bases` is the default."""

    version: Version
    bases: Annotated[tuple[Base, ...], Field(min_length=1)]
    provides: dict[Name, Version] = {}
    prefixes: dict[Name, AbsolutePath] = {}
    parameters: dict[Name, Version] = {}
    archs: tuple[Arch, ...] = ()
    default_archs: tuple[Arch, ...] = ()
    arch_aliases: dict[Arch, Arch] = {}
    driver: Driver | None = None
    licence: Licence | None = None
    install: tuple[Layer, ...] = ()
    tier: Literal["supported", "experimental", "frozen"] = "supported"
    notes: tuple[Text, ...] = ()
    sources: dict[Name, Text] = {}

    @model_validator(mode="after")
    def _facts_have_sources(self) -> StackRow:
        facts = ("provides", "archs", "arch_aliases", "install")
        missing = [one for one in facts if getattr(self, one) and one.replace("_", "-") not in self.sources]
        if missing:
            raise ValueError(
                f"`sources` says nothing on {', '.join(one.replace('_', '-') for one in missing)}"
            )
        return self

    @model_validator(mode="after")
    def _archs_are_listed(self) -> StackRow:
        missing = {*self.default_archs, *self.arch_aliases.values()} - {*self.archs}
        if missing:
            raise ValueError(f"`archs` does not list {', '.join(sorted(missing))}")
        return self


class Stack(Model):
    """A vendor's stack. `name` is how a version is typed."""

    stack: Name
    title: Text
    vendor: Vendor
    name: NamePattern
    rows: Annotated[tuple[StackRow, ...], Field(min_length=1)]


class GitSource(Model):
    """Source code at one commit; `ref` is the tag or branch that it was found at.

    commit: may be cut to its first digits, as release notes name it; `ref` must then stand for such a commit.
    """

    url: HttpsUrl
    ref: GitRef
    commit: Commit = "unresolved"
    submodules: Flag = False
    source: Text


class Arguments(Model):
    """Arguments that are given when a condition holds."""

    when: Condition = Condition()
    words: Words


class Build(Model):
    """How a component is built: in an image of its own, from which `copies` are taken.

    system: the build steps that the planner knows (dpcpp: configure.py and compile.py; cmake: cmake, ninja;
    files: the sources as they are). folder: the one of the sources that cmake configures.
    fetches: git trees that configuring or compiling clones: they are checked out before, at these commits,
    and git takes them from there.
    layers: what the building needs and the finished image does not. configure, compile: arguments in order.
    prefix: where it is installed, the same path at build and run time. copies: what the finished image takes;
    nothing listed means the prefix. python: a folder of the sources that goes to `<prefix>/python`, for the
    system's own Python; python_packages: what it needs beside it.
    """

    system: Literal["dpcpp", "cmake", "files"]
    git: GitSource
    fetches: tuple[GitSource, ...] = ()
    layers: tuple[Layer, ...] = ()
    configure: tuple[Arguments, ...] = ()
    compile: tuple[Arguments, ...] = ()
    prefix: AbsolutePath
    folder: RelativePath | None = None
    copies: tuple[AbsolutePath, ...] = ()
    python: RelativePath | None = None
    python_packages: tuple[PipPackage, ...] = ()


class Selector(Model):
    """The variable that chooses a device in a release's era, and its value for each backend."""

    variable: EnvName
    values: dict[Name, EnvValue]
    source: Text


class Release(Model):
    """One release of a component. `shape` (`YYYY-WWnn`) matches versions that are not listed one by one."""

    version: Version
    released: Date
    shape: Shape | None = None
    provides: dict[Name, Version] = {}
    prefixes: dict[Name, AbsolutePath] = {}
    parameters: dict[Name, Version] = {}
    build: Build | None = None
    install: tuple[Layer, ...] = ()
    selector: Selector | None = None
    bakes_arch: Flag = False
    licence: Licence | None = None
    notes: tuple[Text, ...] = ()
    source: Text


class ComponentFile(Model):
    """A component: something added to a stack.

    by_date: versions are compared by their release date. automatic: when any of these conditions holds, the
    component is added without being named.
    """

    component: Name
    title: Text
    by_date: Flag = False
    automatic: tuple[Condition, ...] = ()
    releases: Annotated[tuple[Release, ...], Field(min_length=1)]


class Rule(Model):
    """What does not go together, or goes with a caveat. `advice` says what else helps."""

    id: Id
    when: Condition
    verdict: Verdict
    because: Text
    source: Text
    advice: Text | None = None


class Rules(Model):
    """The file of rules."""

    rules: tuple[Rule, ...]


class TargetImages(Model):
    """The images that a compile target is built in; the first that supports the archs is taken.

    vendor: whose accelerators its libraries run on. compile_asks: what a compile asks an accelerator for,
    where there is one: its architecture as the default one, or code that only its driver makes.
    """

    target: Name
    aliases: tuple[Name, ...] = ()
    vendor: Vendor = "none"
    compile_asks: tuple[DeviceAnswer, ...] = ()
    images: Annotated[tuple[Expression, ...], Field(min_length=1)]
    default_archs: tuple[Arch, ...] = ()
    because: Text


class Targets(Model):
    """The file of targets."""

    targets: tuple[TargetImages, ...]


class Issue(Model):
    """A known problem: what the log shows, why, how well that is established, and what to do.

    patterns: any of them in a line is enough; upper and lower case are the same. together: patterns of lines
    that stand near each other, all of them. examples: texts in which it is found. since, until: versions that
    have it. tk: what tk does about it. follows: problems of which it is only a consequence, when they are
    found, too. platforms: whose accelerators it is about; none means any.
    """

    id: Id
    patterns: tuple[LogPattern, ...] = ()
    together: tuple[Annotated[tuple[LogPattern, ...], Field(min_length=2, max_length=8)], ...] = ()
    examples: tuple[LogLines, ...] = ()
    cause: Text
    evidence: Text
    action: Text
    since: Text | None = None
    until: Text | None = None
    tk: Text | None = None
    level: Level = "error"
    follows: tuple[Id, ...] = ()
    platforms: tuple[Vendor, ...] = ()
    when: Condition = Condition()

    @model_validator(mode="after")
    def _can_be_found(self) -> Issue:
        if not self.patterns and not self.together:
            raise ValueError("give `patterns`, or `together`")
        return self


class Issues(Model):
    """A file of known issues."""

    issues: tuple[Issue, ...]


class Difference(Model):
    """One difference between a team's own Dockerfile and what is rendered here."""

    before: Text
    now: Text
    because: Text


class Environment(Model):
    """A name of its own for a combination, with the archs it is meant for."""

    name: Name
    title: Text
    image: Expression
    archs: tuple[Arch, ...] = ()
    differences: tuple[Difference, ...] = ()
    source: Text


class Environments(Model):
    """The file of named combinations."""

    environments: tuple[Environment, ...]


class Systems(Model):
    """The file of operating systems."""

    systems: tuple[System, ...]
