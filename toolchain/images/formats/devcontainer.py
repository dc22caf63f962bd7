"""A plan as devcontainer.json: an editor works inside the image, with the least that it needs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from toolchain.images.plan import Plan
from toolchain.images.steps import USER_NAME

if TYPE_CHECKING:
    from toolchain.devices.options import RunOption

FILE = ".devcontainer/devcontainer.json"
# Said by fields of their own, or a matter of single runs: the editor maps the image's user to the caller, who
# has a home in the image.
_SAID_OTHERWISE = {"rm", "init", "user", "userns", "tmpfs", "interactive", "tty", "workdir", "gpus"}


def devcontainer(plan: Plan, options: Iterable[RunOption]) -> str:
    """The file; `options` are those of `tk image run`, for the machine that they are from.

    The image itself is built by tk before the container starts, so that lock and site hold as everywhere.
    """
    given = list(options)
    used = [one for one in given if one.flag not in _SAID_OTHERWISE]
    document: dict[str, Any] = {
        "name": plan.name,
        "initializeCommand": ["tk", "image", "build", plan.name],
        "image": plan.reference,
        "init": True,
        "remoteUser": USER_NAME,
        "updateRemoteUserUID": True,
        "containerEnv": dict(_pair(one) for one in used if one.flag == "env" and not _is_place(one)),
        "mounts": [_mount(one.value) for one in used if one.flag == "mount"],
        "runArgs": [_argument(one) for one in used if one.flag not in ("env", "mount")],
    }
    if any(one.flag == "gpus" for one in given):
        document["hostRequirements"] = {"gpu": True}
    kept = {key: value for key, value in document.items() if value not in ({}, [])}
    return json.dumps(kept, indent=2) + "\n"


def _pair(option: RunOption) -> tuple[str, str]:
    name, _, value = option.value.partition("=")
    return name, value


def _is_place(option: RunOption) -> bool:
    """HOME and TMPDIR name file systems in memory that are for single runs."""
    return _pair(option)[0] in ("HOME", "TMPDIR")


def _mount(value: str) -> str:
    source, target, *mode = value.split(":")
    return f"type=bind,source={source},target={target}{',readonly' if mode else ''}"


def _argument(option: RunOption) -> str:
    flag = "device" if option.flag == "cdi" else option.flag
    return f"--{flag}={option.value}"
