"""The one place in `toolchain/` that reads the environment."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """How to talk: colour or not, whether a person watches, and the width of what standard output goes to.

    `columns` is 0 where standard output is no terminal: then nothing is cut or broken.
    """

    color: bool
    interactive: bool
    columns: int = 0


def console_settings(stream: TextIO | None = None, env: Mapping[str, str] | None = None) -> ConsoleSettings:
    """Decide from the stream (by default standard error) and NO_COLOR, FORCE_COLOR, TERM (no-color.org)."""
    source = os.environ if env is None else env
    interactive = (sys.stderr if stream is None else stream).isatty() and source.get("TERM") != "dumb"
    forced = bool(source.get("FORCE_COLOR"))
    return ConsoleSettings(
        color=not source.get("NO_COLOR") and (forced or interactive),
        interactive=interactive,
        columns=_columns(),
    )


def _columns() -> int:
    """Width of the terminal that standard output is, or 0; COLUMNS counts first."""
    if sys.stdout.closed or not sys.stdout.isatty():
        return 0
    return shutil.get_terminal_size().columns


def login_shell(env: Mapping[str, str] | None = None) -> str:
    """Name of the user's shell, as `bash`; empty when the environment does not say."""
    source = os.environ if env is None else env
    return Path(source.get("SHELL", "")).name


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """What the environment says about container engines; empty texts and None stand for nothing said.

    `config` is the folder of Docker's client configuration; `path` are the folders that programs are looked
    up in; `cli` is the environment for an engine's own client, without anything that selects an engine.
    """

    host: str
    context: str
    podman_host: str
    config: Path
    tls: bool
    tls_verify: bool
    cert_path: Path
    runtime_dir: Path | None
    path: tuple[Path, ...]
    cli: Mapping[str, str]


_SELECTS_AN_ENGINE = (
    "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH",
    "DOCKER_API_VERSION", "DOCKER_BUILDKIT", "CONTAINER_HOST", "CONTAINER_CONNECTION",
)  # fmt: skip


def engine_settings(env: Mapping[str, str] | None = None) -> EngineSettings:
    """Read Docker's and podman's own variables (docs.docker.com/reference/cli/docker, podman-remote(1))."""
    source = os.environ if env is None else env
    home = Path(source.get("HOME") or Path.home())
    config = Path(source.get("DOCKER_CONFIG") or home / ".docker")
    runtime = source.get("XDG_RUNTIME_DIR")
    folders = source.get("PATH", os.defpath).split(os.pathsep)
    return EngineSettings(
        host=source.get("DOCKER_HOST", ""),
        context=source.get("DOCKER_CONTEXT", ""),
        podman_host=source.get("CONTAINER_HOST", ""),
        config=config,
        tls=bool(source.get("DOCKER_TLS")),
        tls_verify=bool(source.get("DOCKER_TLS_VERIFY")),
        cert_path=Path(source.get("DOCKER_CERT_PATH") or config),
        runtime_dir=Path(runtime) if runtime else None,
        path=tuple(Path(folder) for folder in folders if folder),
        cli={
            **{key: value for key, value in source.items() if key not in _SELECTS_AN_ENGINE},
            "LC_ALL": "C.UTF-8",
        },
    )


def environment_variable(name: str, env: Mapping[str, str] | None = None) -> str | None:
    """A variable of ours that a user names to be handed on; None when it is not set."""
    return (os.environ if env is None else env).get(name)


def certificate_settings(env: Mapping[str, str] | None = None) -> tuple[tuple[str, Path], ...]:
    """The variables that name a CA bundle, with their files: OpenSSL's, which counts first, and pip's."""
    source = os.environ if env is None else env
    return tuple((name, Path(source[name])) for name in ("SSL_CERT_FILE", "PIP_CERT") if source.get(name))


def git_environment(
    certificates: Path | None, http_proxy: str, https_proxy: str, no_proxy: str
) -> dict[str, str]:
    """The environment for git: it asks nobody for a password, and uses this CA bundle and these proxies."""
    given = {"http_proxy": http_proxy, "https_proxy": https_proxy, "no_proxy": no_proxy}
    own = {name: value for name, value in given.items() if value}
    if certificates is not None:
        own["GIT_SSL_CAINFO"] = str(certificates)
    return {**os.environ, **own, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C.UTF-8"}


def python_environment() -> dict[str, str]:
    """This process's environment for another Python that is to find the same packages."""
    search = os.pathsep.join(dict.fromkeys(filter(None, sys.path)))
    return {**os.environ, "PYTHONPATH": search}
