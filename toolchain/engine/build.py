"""From a plan to an image: what is there already, what comes first, which builder, and what went wrong."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from compiler import (
    BadInputError,
    BuildError,
    HostError,
    InternalError,
    TkError,
    UsageError,
    load_settings,
    write_atomic,
)
from toolchain.engine import builders, failures, labels, store
from toolchain.engine.builders import BuildRequest, Failure
from toolchain.engine.choice import AS_EVER, BuildOptions
from toolchain.engine.client import Engine
from toolchain.engine.events import Event, Listener, brief
from toolchain.engine.progress import StepTimes, step_times
from toolchain.engine.store import find_image
from toolchain.exclusive import exclusively
from toolchain.explain.causes import known_causes
from toolchain.explain.issue import KnownIssue
from toolchain.images.plan import CA_SECRET, SITE_SECRET, Plan
from toolchain.web import UnreachableError

Progress = Callable[[str, StepTimes], AbstractContextManager[Listener]]
"""Makes a display for the build of one image, from its reference and the times of its steps."""

_SHOWN_LINES = 12
_LOG_SECONDS = 10.0
_OS_RELEASE = ("/etc/os-release", "/usr/lib/os-release")


class BuildSite(Protocol):
    """What a build asks of a site."""

    @property
    def registry(self) -> str:
        """Where the team's images are."""

    def ca_certificates(self) -> bytes:
        """The CA bundle."""

    def build_settings(self) -> bytes:
        """Proxy and mirrors."""


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image that is there now. `how` says how it came: found, pulled or built, and with which builder.

    `needs` are the component images that were made first; `log` is the whole log of a build; `note` says why
    it could not be pulled.
    """

    reference: str
    id: str
    seconds: float
    cached: bool
    how: str
    stand_in: str = ""
    log: Path | None = None
    note: str = ""
    needs: tuple[BuiltImage, ...] = ()


@dataclass(slots=True)
class _Recorder:
    """Keeps the log and what the failing step printed, and passes events on."""

    listener: Listener
    times: StepTimes
    log_path: Path
    lines: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    output: dict[str, list[str]] = field(default_factory=dict)
    failed: str = ""
    written: float = field(default_factory=time.monotonic)

    def hear(self, event: Event) -> None:
        if event.kind == "started":
            self.texts[event.step] = event.text
        elif event.kind == "output":
            self.output.setdefault(event.step, []).append(event.text)
        elif event.kind == "failed" and not self.failed and event.text != "CANCELED":
            self.failed = event.step
        self.listener(event)
        if time.monotonic() - self.written > _LOG_SECONDS:
            self.write()

    def write(self) -> None:
        """Write the log as far as it goes; a full disk does not stop the build."""
        self.written = time.monotonic()
        with contextlib.suppress(HostError):
            write_atomic(self.log_path, "".join(f"{line}\n" for line in self.lines))


def build_image(
    engine: Engine,
    plan: Plan,
    *,
    site: BuildSite | None = None,
    secrets: Mapping[str, bytes] | None = None,
    progress: Progress | None = None,
    options: BuildOptions = AS_EVER,
    issues: Iterable[KnownIssue] = (),
) -> BuiltImage:
    """Make sure that an image is on the engine: find it, pull it as the lock or the site says, or build it.

    secrets: by id, in place of what `site` gives. issues: of recipes/issues, to explain a failure.
    Raises BadInputError when something is unresolved or a stand-in does not fit, HostError when the engine
    fails or the base cannot be fetched, and BuildError, with the last lines of the failing step and known
    causes, when a step does.
    """
    started = time.monotonic()
    if not options.no_cache and (found := find_image(engine, plan)):
        return _there(plan, found, "found", started)
    store.sweep(engine)
    pulled, note = _pulled(engine, plan, site, options)
    if pulled is not None:
        return _there(plan, pulled, note, started)
    _refuse_unresolved(plan)
    base_labels = check_base(engine, plan)
    given = _secrets(plan, site) if secrets is None else dict(secrets)
    needs = tuple(
        build_image(engine, need, site=site, secrets=secrets, progress=progress,
                    options=options, issues=issues)
        for need in plan.needs
    )  # fmt: skip
    work = _Work(engine, plan, given, {**dict(plan.build_labels), **base_labels}, options)
    same, waiting = (
        f"{engine.endpoint.url} {plan.key}",
        f"another tk is building {plan.reference}: waiting for it",
    )
    with exclusively("build", same, waiting=waiting) as waited:
        if waited and not options.no_cache and (found := find_image(engine, plan)):
            return _there(plan, found, "built meanwhile by another tk", started)
        log, name = _build(work, progress or _silent, issues)
    made = find_image(engine, plan)
    if made is None:
        raise InternalError(f"{name} says it has built {plan.reference}, but the engine has no such image")
    return BuiltImage(
        plan.reference, made.id, time.monotonic() - started, cached=False, how=f"built with {name}",
        stand_in=made.stand_in, log=log, needs=needs, note=note,
    )  # fmt: skip


def _pulled(
    engine: Engine, plan: Plan, site: BuildSite | None, how: BuildOptions
) -> tuple[store.StoredImage | None, str]:
    """The image as the lock or the site's registry has it, and how; or None, and why: it can be built."""
    if not how.pull or how.no_cache:
        return None, ""
    return store.pull_published(engine, plan, site.registry if site is not None else "")


def _there(plan: Plan, found: store.StoredImage, how: str, started: float) -> BuiltImage:
    taken = time.monotonic() - started
    return BuiltImage(plan.reference, found.id, taken, cached=True, how=how, stand_in=found.stand_in)


def _refuse_unresolved(plan: Plan) -> None:
    if missing := plan.unresolved():
        raise BadInputError(
            f"{plan.name} cannot be built yet: {len(missing)} of its parts are not pinned",
            why="\n".join(one.what for one in missing),
            hint=missing[0].hint,
        )


def check_base(engine: Engine, plan: Plan) -> dict[str, str]:
    """Make sure that a stand-in base is there and has the recipe's operating system; labels that name it.

    Raises HostError when it is missing and BadInputError when its system differs.
    """
    if not plan.base.stand_in:
        return {}
    facts = engine.image(plan.base.reference)
    if facts is None:
        raise HostError(
            f"the engine at {engine.endpoint} has no image {plan.base.reference}",
            hint="`docker image ls` lists what it has; --base names one of them",
        )
    found = operating_system(engine, plan.base.reference)
    if found != plan.base.os:
        raise BadInputError(
            f"{plan.base.reference} cannot stand in for the base of {plan.name}",
            where="--base",
            why=f"its /etc/os-release says {found or 'nothing'}, the recipe's base is {plan.base.os}",
            hint=f"name an image of {plan.base.os}",
        )
    return {labels.BASE_ID: str(facts["Id"])}


def operating_system(engine: Engine, image: str) -> str:
    """The system of an image by its os-release(5): `debian-12`; empty when it has none."""
    found = (engine.read_file(image, path) for path in _OS_RELEASE)
    data = next((one for one in found if one is not None), b"")
    fields = dict(line.split("=", 1) for line in data.decode(errors="replace").splitlines() if "=" in line)
    system, version = (fields.get(key, "").strip("\"'") for key in ("ID", "VERSION_ID"))
    return f"{system}-{version}" if system and version else system


def _secrets(plan: Plan, site: BuildSite | None) -> dict[str, bytes]:
    """Those of the site's secrets that some step can use and that say something."""
    if site is None:
        return {}
    have = {CA_SECRET: site.ca_certificates, SITE_SECRET: site.build_settings}
    given = {name: have[name]() for name in plan.secrets if name in have}
    return {name: data for name, data in given.items() if data}


@dataclass(frozen=True, slots=True)
class _Work:
    """One image that has to be built now."""

    engine: Engine
    plan: Plan
    secrets: Mapping[str, bytes]
    labels: Mapping[str, str]
    options: BuildOptions

    def request(self) -> BuildRequest:
        from toolchain.images.render import context

        return BuildRequest(
            reference=self.plan.reference,
            files=context(self.plan),
            labels=self.labels,
            secrets=self.secrets,
            cache_from=self.options.cache_from,
            cache_to=self.options.cache_to,
            no_cache=self.options.no_cache,
            network=self.options.network,
        )


def _build(work: _Work, progress: Progress, issues: Iterable[KnownIssue]) -> tuple[Path, str]:
    """Build one image; its log and the builder's name. Raises BuildError."""
    path = load_settings().cache_dir / "logs" / "build" / f"{_file_name(work.plan.reference)}.log"
    times = step_times(work.plan.name, f"{work.options.builder} {work.engine.endpoint.url}")
    with progress(work.plan.reference, times) as listener:
        recorder = _Recorder(listener, times, path)
        try:
            name, failure = _with_some_builder(work, recorder)
        finally:
            recorder.write()
    if failure is not None:
        work.engine.check_alive("go on with the build")
        raise _failed(work, recorder, failure, issues)
    times.keep()
    return path, name


def _file_name(reference: str) -> str:
    """A reference as a file name that is easy to type."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", reference)


def _with_some_builder(work: _Work, recorder: _Recorder) -> tuple[str, Failure | None]:
    engine, hear, lines = work.engine, recorder.hear, recorder.lines
    if engine.kind == "podman" and work.options.builder == "buildkit":
        raise HostError(f"cannot build with BuildKit: podman {engine.version} has none; leave out --builder")
    if engine.kind == "podman" or work.options.builder == "classic":
        return _classic(work, recorder, ())
    client, reasons = builders.find_buildkit()
    if client is not None:
        name = f"BuildKit through {client.program} {client.version}"
        return name, builders.build_with_buildkit(engine, client, work.request(), hear, lines)
    if work.options.builder == "buildkit":
        raise HostError(
            f"cannot build with BuildKit: {'; '.join(reasons)};"
            " install docker-buildx-plugin, or use --builder classic"
        )
    return _classic(work, recorder, reasons)


def _classic(work: _Work, recorder: _Recorder, reasons: Sequence[str]) -> tuple[str, Failure | None]:
    from toolchain.engine.classic import ClassicBuild

    if work.options.cache_from or work.options.cache_to:
        raise UsageError(
            "only BuildKit can take or keep a cache elsewhere",
            where="--cache-from, --cache-to",
            why="; ".join(reasons) or f"this build is done by {_without_buildkit(work.engine)}",
            hint="leave them out: steps that are on the engine are used again",
        )
    for reason in reasons:
        recorder.hear(Event("output", "", f"no BuildKit: {reason}"))
    _have_base(work)
    build = ClassicBuild(work.engine, work.request(), recorder.hear, recorder.lines)
    because = f" (no BuildKit: {'; '.join(reasons)})" if reasons else ""
    return f"{_without_buildkit(work.engine)}{because}", build.run(work.plan)


def _without_buildkit(engine: Engine) -> str:
    which = "podman" if engine.kind == "podman" else "Docker's classic builder"
    return f"{which} {engine.version}"


def _have_base(work: _Work) -> None:
    """Pull the base unless it is there: builders other than BuildKit know nothing of Docker's credentials."""
    base = work.plan.base
    if base.stand_in:
        return
    for one in work.plan.stages[0].instructions[:1]:
        reference = getattr(one, "mirror", "") or getattr(one, "image", "")
        if reference and work.engine.image(reference) is None:
            store.pull_base(work.engine, reference)


def _failed(work: _Work, recorder: _Recorder, failure: Failure, issues: Iterable[KnownIssue]) -> TkError:
    """A step that failed; what a builder cannot fetch itself, as the base, is no fault of a step."""
    said = recorder.output.get(recorder.failed, [])
    lines = [*said, failure.why]
    causes = known_causes(lines, issues)
    step = brief(recorder.texts.get(recorder.failed, ""))
    shown = [*([step] if step else []), *said[-_SHOWN_LINES:], failure.why]
    away = failures.beyond(work.engine.endpoint, failure.why)
    fix = away.hint if away else "the step's last lines say why; the log has all of them"
    kind = UnreachableError if isinstance(away, UnreachableError) else BuildError
    return kind(
        f"cannot build {work.plan.name}",
        where=f"{recorder.log_path} (the whole log)",
        why="\n".join(dict.fromkeys(shown)),
        hint="\n".join(one.advice for one in causes) or fix,
    )


@contextlib.contextmanager
def _quiet() -> Iterator[Listener]:
    yield lambda _event: None


def _silent(_reference: str, _times: StepTimes) -> AbstractContextManager[Listener]:
    return _quiet()
