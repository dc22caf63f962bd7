"""What a user says of an engine and of builds on it. Imports nothing heavy, as `tk --help` imports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

BuilderName = Literal["auto", "buildkit", "classic"]
BUILDERS: tuple[BuilderName, ...] = ("auto", "buildkit", "classic")


@dataclass(frozen=True, slots=True)
class EngineChoice:
    """Which engine (`--docker-host`, `--engine`); by default the one that is found."""

    docker_host: str | None = None
    kind: str | None = None


@dataclass(frozen=True, slots=True)
class BuildOptions:
    """How to build: `no_cache` runs every step again; caches as Docker's `--cache-from` and `--cache-to`.

    network: `none` or `host` for all steps, by default the engine's own. pull: first by the lock's digest, or
    from the site's registry.
    """

    builder: BuilderName = "auto"
    no_cache: bool = False
    cache_from: tuple[str, ...] = ()
    cache_to: tuple[str, ...] = ()
    network: str = ""
    pull: bool = True


ANY_ENGINE = EngineChoice()
AS_EVER = BuildOptions()
