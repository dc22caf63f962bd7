"""Which container engine: one answer for the Python SDK and for the command line clients.

The order is that of Docker's own client: an option, then DOCKER_HOST, then DOCKER_CONTEXT, then the current
context of its configuration, then the usual sockets. Contexts are read here and not by the SDK, as its
releases differ in whether they know them (docker-py issue 3146).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from compiler import BadInputError, HostError, UsageError, did_you_mean
from toolchain.settings import EngineSettings, engine_settings

EngineKind = Literal["docker", "podman"]
KINDS: tuple[EngineKind, ...] = ("docker", "podman")

DEFAULT_DOCKER = Path("/var/run/docker.sock")
DEFAULT_PODMAN = Path("/run/podman/podman.sock")
_URL = re.compile(r"(unix|tcp|http|https|ssh)://\S+")
_DEFAULT_CONTEXT = "default"


@dataclass(frozen=True, slots=True)
class Tls:
    """Files of a TLS connection; a file that does not exist is not used; `verify`: the engine's name, too."""

    ca: Path
    cert: Path
    key: Path
    verify: bool


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where an engine answers: its URL, and in words where that was found (`DOCKER_HOST`, `the default`)."""

    url: str
    source: str
    tls: Tls | None = None

    @property
    def is_local(self) -> bool:
        """Whether it is a socket of this machine, so that the engine may see this machine's files."""
        return self.url.startswith("unix://")

    @property
    def socket(self) -> Path | None:
        """The file of a local socket."""
        return Path(self.url.removeprefix("unix://")) if self.is_local else None

    def __str__(self) -> str:
        return f"{self.url} ({self.source})"


def resolve_endpoint(
    option: str | None = None,
    *,
    kind: str | None = None,
    settings: EngineSettings | None = None,
) -> Endpoint:
    """The engine that `option` (of `--docker-host`), the environment or Docker's configuration names.

    `kind` (of `--engine`) is `docker` or `podman`; with `podman`, podman's variable and sockets are looked at
    instead of Docker's. Nothing is connected. Raises UsageError for a malformed URL or unknown kind and
    BadInputError for a context that is broken or missing.
    """
    if kind is not None and kind not in KINDS:
        raise UsageError(
            f"no engine is called `{kind}`",
            where="--engine",
            hint=did_you_mean(kind, KINDS) or "docker or podman",
        )
    now = settings or engine_settings()
    if option:
        return _given(option, "--docker-host", now)
    if kind == "podman":
        return _podman(now)
    if now.host:
        return _given(now.host, "DOCKER_HOST", now)
    if now.context:
        return _context(now.context, "DOCKER_CONTEXT", now)
    if current := _current_context(now):
        return _context(current, f"currentContext in {now.config / 'config.json'}", now)
    return _default(now, kind)


def _given(url: str, source: str, settings: EngineSettings) -> Endpoint:
    text = f"unix://{url}" if url.startswith("/") else url
    if not _URL.fullmatch(text):
        raise UsageError(
            f"`{url}` is not the address of an engine",
            where=source,
            hint="unix:///path/to/socket, tcp://host:port or ssh://user@host",
        )
    return Endpoint(text, source, _environment_tls(settings) if text.startswith(("tcp:", "https:")) else None)


def _environment_tls(settings: EngineSettings) -> Tls | None:
    if not settings.tls and not settings.tls_verify:
        return None
    return _tls(settings.cert_path, verify=settings.tls_verify)


def _tls(folder: Path, *, verify: bool) -> Tls:
    return Tls(folder / "ca.pem", folder / "cert.pem", folder / "key.pem", verify)


def _podman(settings: EngineSettings) -> Endpoint:
    if settings.podman_host:
        return _given(settings.podman_host, "CONTAINER_HOST", settings)
    if "podman" in settings.host:
        return _given(settings.host, "DOCKER_HOST", settings)
    sockets = _podman_sockets(settings)
    found = next((one for one in sockets if one.exists()), sockets[0])
    return Endpoint(f"unix://{found}", "podman's default")


def _podman_sockets(settings: EngineSettings) -> list[Path]:
    own = [settings.runtime_dir / "podman" / "podman.sock"] if settings.runtime_dir else []
    return [*own, DEFAULT_PODMAN]


def _default(settings: EngineSettings, kind: str | None) -> Endpoint:
    """Docker's socket, the one of a rootless Docker, or, unless Docker was asked for, one of podman."""
    rootless = [settings.runtime_dir / "docker.sock"] if settings.runtime_dir else []
    for path in (DEFAULT_DOCKER, *rootless):
        if path.exists():
            return Endpoint(f"unix://{path}", "the default")
    if kind is None:
        for path in _podman_sockets(settings):
            if path.exists():
                return Endpoint(f"unix://{path}", "podman's default")
    return Endpoint(f"unix://{DEFAULT_DOCKER}", "the default")


def _current_context(settings: EngineSettings) -> str:
    document = _read_json(settings.config / "config.json")
    name = document.get("currentContext", "") if document is not None else ""
    return name if isinstance(name, str) and name != _DEFAULT_CONTEXT else ""


def _context(name: str, source: str, settings: EngineSettings) -> Endpoint:
    """The endpoint of a context, kept in a folder named by the SHA-256 of its name (docker/cli)."""
    if name == _DEFAULT_CONTEXT:
        return _default(settings, None)
    identity = hashlib.sha256(name.encode()).hexdigest()
    path = settings.config / "contexts" / "meta" / identity / "meta.json"
    document = _read_json(path)
    if document is None:
        raise BadInputError(
            f"no Docker context is called `{name}`",
            where=source,
            hint=did_you_mean(name, _context_names(settings)) or "`docker context ls` lists them",
        )
    facts = _mapping(_mapping(document.get("Endpoints")).get("docker"))
    url = facts.get("Host")
    if not isinstance(url, str) or not _URL.fullmatch(url):
        raise BadInputError(
            f"the Docker context `{name}` names no engine", where=str(path), why=f"Host is {url!r}"
        )
    folder = settings.config / "contexts" / "tls" / identity / "docker"
    tls = _tls(folder, verify=not facts.get("SkipTLSVerify")) if folder.is_dir() else None
    return Endpoint(url, f"the context `{name}`, {source}", tls)


def _context_names(settings: EngineSettings) -> list[str]:
    documents = (_read_json(path) for path in (settings.config / "contexts" / "meta").glob("*/meta.json"))
    return [str(one["Name"]) for one in documents if one is not None and "Name" in one]


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file of Docker's configuration, or None when there is no such file."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostError(
            "cannot read Docker's configuration", where=str(path), why=error.strerror or ""
        ) from error
    except ValueError as error:
        raise BadInputError("Docker's configuration is not JSON", where=str(path), why=str(error)) from error
    return document if isinstance(document, dict) else {}
