"""What an image tells an engine to do with its containers, so that images of several builders compare."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolchain.engine import labels
from toolchain.engine.client import Engine

_FIELDS = (
    "Entrypoint", "Cmd", "User", "WorkingDir", "Volumes", "ExposedPorts", "StopSignal", "Healthcheck",
    "OnBuild", "Shell",
)  # fmt: skip


def config_of(engine: Engine, reference: str) -> dict[str, Any]:
    """An image's configuration without what is empty, as engines write that in different ways.

    Variables by name. Without the id of a stand-in base, which each engine gives it anew.
    """
    config: Mapping[str, Any] = (engine.image(reference) or {})["Config"]
    own = {name: text for name, text in (config.get("Labels") or {}).items() if name != labels.BASE_ID}
    env = dict(one.split("=", 1) for one in config.get("Env") or ())
    found = {name: config.get(name) for name in _FIELDS} | {"Env": env, "Labels": own}
    found["WorkingDir"] = (found["WorkingDir"] or "").removesuffix("/")
    return {name: value for name, value in found.items() if value}
