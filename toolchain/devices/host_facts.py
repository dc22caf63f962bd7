"""What the choice of run options depends on besides the devices: the engine's abilities and the caller."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine says about itself that decides how it is asked for devices.

    cdi: it resolves Container Device Interface names. is_remapped: users of containers are others on the host
    though it is not rootless (Docker's userns-remap). is_desktop: it runs in a virtual machine of its own.
    """

    kind: Literal["docker", "podman"]
    version: str = ""
    is_local: bool = True
    is_rootless: bool = False
    is_remapped: bool = False
    is_desktop: bool = False
    runtimes: tuple[str, ...] = ()
    cdi: bool = False


@dataclass(frozen=True, slots=True)
class Caller:
    """Who runs `tk`: numeric user, group and all groups."""

    uid: int
    gid: int
    groups: tuple[int, ...] = ()


def this_caller() -> Caller:
    """The user of this process."""
    return Caller(os.getuid(), os.getgid(), tuple(sorted({*os.getgroups(), os.getgid()})))


def read_facts(
    kind: Literal["docker", "podman"], version: str, info: Mapping[str, Any], *, is_local: bool
) -> EngineFacts:
    """The facts in an engine's answer to GET /info.

    Docker lists `CDISpecDirs` when the interface is on (since 25 where asked for, since 28.2 by default: CDI
    repository, pull request 277); podman has it since 4.1.
    """
    security = [str(one) for one in info.get("SecurityOptions") or ()]
    names = [str(one) for one in info.get("Runtimes") or {}]
    return EngineFacts(
        kind=kind,
        version=version,
        is_local=is_local,
        is_rootless=any("rootless" in one for one in security),
        is_remapped=any("userns" in one for one in security),
        is_desktop="Docker Desktop" in str(info.get("OperatingSystem", "")),
        runtimes=tuple(sorted(names)),
        cdi=_at_least(version, (4, 1)) if kind == "podman" else bool(info.get("CDISpecDirs")),
    )


def _at_least(version: str, wanted: tuple[int, ...]) -> bool:
    numbers = [int(part) if part.isdigit() else 0 for part in version.split("-")[0].split(".")[: len(wanted)]]
    return tuple(numbers) >= wanted
