"""A plan as devcontainer.json: an editor works inside the image, with the least that it needs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from compiler import UsageError
from toolchain.images.plan import Plan
from toolchain.images.steps import USER_NAME

if TYPE_CHECKING:
    from toolchain.devices.options import RunOption

FILE = ".devcontainer/devcontainer.json"
# Said by fields of their own, or a matter of single runs: the editor maps the image's user to the caller, who
# has a home in the image.
_SAID_OTHERWISE = {"rm", "init", "user", "userns", "tmpfs", "interactive", "tty", "workdir", "gpus"}
_EXTENSIONS = ("ms-vscode.cpptools", "ms-python.python")
_EXTENSIONS_OF = {"nvidia": ("nvidia.nsight-vscode-edition",)}
"""What an editor needs for the languages of these images, and for a vendor's debugger; by their names at
marketplace.visualstudio.com."""
_EXTENSION = re.compile(r"-?[A-Za-z0-9][A-Za-z0-9-]*\.[A-Za-z0-9][A-Za-z0-9-]*(@[0-9A-Za-z.+-]+)?")
_FEATURE = re.compile(
    r"[a-z0-9][a-z0-9.-]*(:\d+)?(/[a-z0-9][a-z0-9._-]*){2,}(:[A-Za-z0-9][A-Za-z0-9._-]*|@sha256:[0-9a-f]{64})?"
    r"|\./[A-Za-z0-9][A-Za-z0-9._/-]*"
)


def devcontainer(
    plan: Plan,
    options: Iterable[RunOption],
    *,
    features: Sequence[str] = (),
    extensions: Sequence[str] = (),
) -> str:
    """The file; `options` are those of `tk image run`, for the machine that they are from.

    The image itself is built by tk before the container starts, so that lock and site hold as everywhere.
    features: references of features, which the editor installs on top of it; extensions: names of extensions
    (`publisher.name`) beside those that the image's languages need. Raises UsageError for what is neither.
    """
    _check("--feature", "a feature", _FEATURE, features, "ghcr.io/devcontainers/features/git:1")
    _check("--extension", "an extension", _EXTENSION, extensions, "llvm-vs-code-extensions.vscode-clangd")
    vendor = plan.resolution.vendor if plan.resolution else ""
    usual = (*_EXTENSIONS, *_EXTENSIONS_OF.get(vendor, ()))
    wanted = dict.fromkeys((*(one for one in usual if f"-{one}" not in extensions), *extensions))
    given = list(options)
    used = [one for one in given if one.flag not in _SAID_OTHERWISE]
    document: dict[str, Any] = {
        "name": plan.name,
        "initializeCommand": ["tk", "image", "build", plan.section],
        "image": plan.reference,
        "features": {one: {} for one in features},
        "init": True,
        "remoteUser": USER_NAME,
        "updateRemoteUserUID": True,
        "containerEnv": dict(_pair(one) for one in used if one.flag == "env" and not _is_place(one)),
        "mounts": [_mount(one.value) for one in used if one.flag == "mount"],
        "runArgs": [_argument(one) for one in used if one.flag not in ("env", "mount")],
    }
    document["customizations"] = {"vscode": {"extensions": list(wanted)}}
    if any(one.flag == "gpus" for one in given):
        document["hostRequirements"] = {"gpu": True}
    kept = {key: value for key, value in document.items() if value not in ({}, [])}
    return json.dumps(kept, indent=2) + "\n"


def _check(where: str, what: str, form: re.Pattern[str], given: Sequence[str], example: str) -> None:
    if wrong := [one for one in given if not form.fullmatch(one)]:
        named = ", ".join(f"`{one}`" for one in wrong)
        raise UsageError(f"{named} does not name {what}", where=where, hint=f"for example {example}")


def _pair(option: RunOption) -> tuple[str, str]:
    name, given, value = option.value.partition("=")
    return name, value if given else f"${{localEnv:{name}}}"


def _is_place(option: RunOption) -> bool:
    """HOME and TMPDIR name file systems in memory that are for single runs."""
    return _pair(option)[0] in ("HOME", "TMPDIR")


def _mount(value: str) -> str:
    source, target, *mode = value.split(":")
    return f"type=bind,source={source},target={target}{',readonly' if mode else ''}"


def _argument(option: RunOption) -> str:
    flag = "device" if option.flag == "cdi" else option.flag
    return f"--{flag}={option.value}"
