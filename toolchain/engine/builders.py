"""What turns a context into an image: BuildKit through Docker's client, or the engine's own service.

Docker's SDK has no BuildKit (docker-py issue 2230), so its client is started; which one works is tried out,
as clients since version 23 need the component buildx, and older ones bring BuildKit themselves. Contexts go
in as an archive and secrets as BuildKit's secrets, so nothing relies on files that the engine can see.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler import UsageError, private_directory, remove_abandoned_directories, run, write_atomic
from toolchain.engine.client import Engine
from toolchain.engine.events import BuildKitLog, Listener, StepLog, split_lines
from toolchain.engine.watch import followed
from toolchain.images.plan import ContextFile
from toolchain.settings import EngineSettings, engine_settings

_FIRST_WITHOUT_BUILDKIT = 23
"""The first release of Docker's client that leaves BuildKit to the component buildx."""
_FOLDER = "tk-build"
_VERSION = re.compile(r"(\d+)\.(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True)
class BuildRequest:
    """What to build: the context with its Dockerfile, the image's name and labels, and secrets by id.

    unset: variables of the base that the image shall not have, where the engine's own service builds.
    """

    reference: str
    files: tuple[ContextFile, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, bytes] = field(default_factory=dict)
    cache_from: tuple[str, ...] = ()
    cache_to: tuple[str, ...] = ()
    no_cache: bool = False
    network: str = ""
    unset: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BuildKitClient:
    """A client of Docker's that can build with BuildKit: its program and the words that start a build."""

    program: Path
    words: tuple[str, ...]
    version: str

    @property
    def has_buildx(self) -> bool:
        """Whether it is Docker's component buildx, which can do more than older clients."""
        return self.words[0] == "buildx"


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a build failed, in the builder's own words; None in its place when it did not."""

    why: str


def find_buildkit(settings: EngineSettings | None = None) -> tuple[BuildKitClient | None, tuple[str, ...]]:
    """The first client on the PATH that can build with BuildKit, and why others cannot."""
    reasons: list[str] = []
    for folder in (settings or engine_settings()).path:
        program = folder / "docker"
        if program.is_file():
            client, reason = _probe(program, settings or engine_settings())
            if client is not None:
                return client, tuple(reasons)
            reasons.append(reason)
    return None, tuple(reasons) or ("no program `docker` is on the PATH",)


def _probe(program: Path, settings: EngineSettings) -> tuple[BuildKitClient | None, str]:
    asked = run([str(program), "buildx", "version"], env=settings.cli)
    if asked.returncode == 0:
        version = _VERSION.search(asked.stdout)
        return BuildKitClient(program, ("buildx", "build", "--load"), version[0] if version else ""), ""
    answer = run([str(program), "--version"], env=settings.cli)
    version = _VERSION.search(answer.stdout)
    if version is None:
        return None, f"{program} does not say its version"
    if int(version[1]) >= _FIRST_WITHOUT_BUILDKIT:
        return None, f"{program} {version[0]} lacks its component buildx (package docker-buildx-plugin)"
    return BuildKitClient(program, ("build",), version[0]), ""


def build_with_buildkit(
    engine: Engine, client: BuildKitClient, request: BuildRequest, listener: Listener, log: list[str]
) -> Failure | None:
    """Build on `engine` through Docker's client; lines of the log are added to `log`."""
    settings = engine_settings()
    read = BuildKitLog(listener)
    watch = engine.watch(f"build {request.reference}")

    def hear(line: str) -> None:
        watch.heard()
        log.append(line)
        read(line)

    remove_abandoned_directories(_FOLDER)  # of builds that were killed: they hold secrets
    engine.start_reaper()
    with private_directory(_FOLDER) as folder:
        argv = [*_watchdog(settings), str(client.program), *_connection(engine), *client.words]
        argv += [*_options(client, request), *_secret_options(folder, request.secrets), "-"]
        done = run(
            argv,
            env={**settings.cli, "DOCKER_BUILDKIT": "1", "BUILDKIT_PROGRESS": "plain"},
            input=archive(request.files),
            on_line=hear,
            merged=True,
            check=watch.check,
        )
    return None if done.returncode == 0 else Failure(_last_word(log))


def _options(client: BuildKitClient, request: BuildRequest) -> Iterator[str]:
    yield from ("--progress", "plain", "--tag", request.reference)
    for name, value in sorted(request.labels.items()):
        yield from ("--label", f"{name}={value}")
    if request.no_cache:
        yield "--no-cache"
    if request.network:
        yield from ("--network", request.network)
    for source in request.cache_from:
        yield from ("--cache-from", source)
    for target in request.cache_to:
        yield from _cache_target(client, target)
    if client.has_buildx and _at_least(client.version, (0, 10)):
        yield from ("--provenance", "false")  # it would record the clock


def _cache_target(client: BuildKitClient, target: str) -> Iterator[str]:
    if client.has_buildx:
        yield from ("--cache-to", target)
    elif target == "type=inline":
        yield from ("--build-arg", "BUILDKIT_INLINE_CACHE=1")
    else:
        raise UsageError(
            f"`{target}` needs Docker's component buildx",
            where="--cache-to",
            why=f"{client.program} {client.version} can only keep the cache in the image itself",
            hint="install the package docker-buildx-plugin, or use --cache-to type=inline",
        )


def _secret_options(folder: Path, secrets: Mapping[str, bytes]) -> Iterator[str]:
    for name, data in sorted(secrets.items()):
        write_atomic(folder / name, data, mode=0o600)
        yield from ("--secret", f"id={name},src={folder / name}")


def _connection(engine: Engine) -> Iterator[str]:
    """Options that make Docker's client use the same engine, and the same keys, as the SDK."""
    yield from ("--host", engine.endpoint.url)
    tls = engine.endpoint.tls
    if tls is None:
        return
    yield "--tlsverify" if tls.verify else "--tls"
    for option, path in (("--tlscacert", tls.ca), ("--tlscert", tls.cert), ("--tlskey", tls.key)):
        if path.exists():
            yield from (option, str(path))


def _watchdog(settings: EngineSettings) -> list[str]:
    """What makes a child die with this process, even when that is killed; part of util-linux."""
    found = (folder / "setpriv" for folder in settings.path)
    program = next((path for path in found if path.is_file()), None)
    return [str(program), "--pdeathsig", "KILL", "--"] if program else []


def build_with_api(
    engine: Engine,
    request: BuildRequest,
    context: bytes,
    listener: Listener,
    log: list[str],
) -> tuple[Failure | None, str]:
    """Build through the engine's own service (POST /build), which the SDK's `build` lacks parameters of.

    The id of the image comes second; without a reference in the request that is all it has.
    """
    query: dict[str, Any] = {
        **({"t": request.reference} if request.reference else {}),
        "labels": json.dumps(dict(request.labels)),
        "cachefrom": json.dumps(list(request.cache_from)),
        "nocache": "1" if request.no_cache else "0",
        "rm": "1",
        "forcerm": "1",
        **({"networkmode": request.network} if request.network else {}),
        "layers": "1",  # podman's word for a cache
        "identitylabel": "0",  # else podman's own label is in the image
        **({"unsetenv": list(request.unset)} if request.unset else {}),  # podman's word, too
    }
    read = StepLog(listener)
    doing = f"build {request.reference}".rstrip()
    with engine.guard(doing):
        parts = followed(lambda: _answer(engine, query, context), engine.watch(doing))
        failure, identity = _read_answer(parts, read, log)
    if failure is None:
        read.finish()
    else:
        read.fail(failure.why)
    return failure, identity


def _answer(engine: Engine, query: Mapping[str, Any], context: bytes) -> Iterator[Failure | bytes]:
    """What the engine's service answers as it comes, or why it refuses."""
    with engine.api.post(
        f"{engine.api.base_url}/v{engine.api.api_version}/build",
        params=query,
        data=context,
        headers={"Content-Type": "application/x-tar"},
        stream=True,
        timeout=None,
    ) as response:
        refused = engine_refusal(response)
        if refused is not None:
            yield refused
        else:
            yield from response.iter_content(None)


def engine_refusal(response: Any) -> Failure | None:
    """Why the engine does not do what it was asked for, if it does not."""
    if response.ok:
        return None
    try:
        return Failure(str(response.json().get("message", response.text)).strip())
    except ValueError:
        return Failure(response.text.strip() or response.reason)


def _read_answer(
    parts: Iterator[Failure | bytes], read: StepLog, log: list[str]
) -> tuple[Failure | None, str]:
    """Follow the stream of JSON objects: text, the image's id, or an error, which comes with status 200."""
    failures: list[Failure] = []
    identities = [""]

    def decoded() -> Iterator[str]:
        for part in parts:
            if isinstance(part, Failure):
                failures.append(part)
            else:
                yield part.decode(errors="replace")

    def texts() -> Iterator[str]:
        for one in json_objects(decoded()):
            if "error" in one:
                failures.append(Failure(str(one["error"]).strip()))
            identities.append(str((one.get("aux") or {}).get("ID", "")))
            yield str(one.get("stream", ""))

    for line in split_lines(texts()):
        log.append(line)
        read(line)
    log.extend(one.why for one in failures)
    return failures[0] if failures else None, next(filter(None, reversed(identities)), "")


def json_objects(parts: Iterator[str]) -> Iterator[dict[str, Any]]:
    """The objects of a stream of JSON objects that comes in parts, whatever their borders."""
    decoder = json.JSONDecoder()
    rest = ""
    for part in parts:
        rest = (rest + part).lstrip()
        while rest:
            try:
                value, end = decoder.raw_decode(rest)
            except ValueError:
                break  # the rest of it has yet to come
            rest = rest[end:].lstrip()
            if isinstance(value, dict):
                yield value


def archive(files: Sequence[ContextFile]) -> bytes:
    """A tar of the files, the same bytes for the same files: owned by root, dated 1970.

    It ends where its content does: podman fails when its reader does not take the padding that tars may have.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for one in sorted(files, key=lambda each: each.path):
            entry = tarfile.TarInfo(one.path)
            entry.size, entry.mode = len(one.data), one.mode
            tar.addfile(entry, io.BytesIO(one.data))
    return buffer.getvalue()[: tar.offset]


def _last_word(log: Sequence[str]) -> str:
    """BuildKit's own summary: the last line that says something."""
    said = [line.strip() for line in log if line.strip() and not line.startswith("#")]
    return said[-1] if said else "the builder said nothing"


def _at_least(version: str, wanted: tuple[int, int]) -> bool:
    match = _VERSION.search(version)
    return match is not None and (int(match[1]), int(match[2])) >= wanted
