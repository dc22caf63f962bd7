"""What a machine says about its devices, as data: from its file system, a captured tree or a probe.

Detection reads nothing itself. It gets a `Sysroot`: texts of the few files of /sys, /proc, /etc and /opt that
matter, targets of links, and what stat says of nodes in /dev. So a captured machine, this machine and the
machine of a remote engine are looked at by the same code, and tests need no GPU.
"""

from __future__ import annotations

import base64
import json
import os
import stat
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath

from compiler import BadInputError

MOST_BYTES = 256 * 1024
"""A longer file is cut: none that matters is longer, and what a machine shows may be anything."""

FILES: tuple[str, ...] = (
    "/sys/bus/pci/devices/*/vendor",
    "/sys/bus/pci/devices/*/device",
    "/sys/bus/pci/devices/*/class",
    "/sys/bus/pci/devices/*/numa_node",
    "/sys/class/kfd/kfd/topology/nodes/*/properties",
    "/sys/class/kfd/kfd/topology/nodes/*/gpu_id",
    "/sys/module/amdgpu/version",
    "/sys/module/hydcu/version",
    "/sys/module/hycu/version",
    "/proc/driver/nvidia/version",
    "/proc/driver/nvidia/params",
    "/proc/driver/nvidia/gpus/*/information",
    "/etc/cdi/*.json",
    "/etc/cdi/*.yaml",
    "/var/run/cdi/*.json",
    "/var/run/cdi/*.yaml",
)
"""Patterns of the files whose text matters."""
LINKS: tuple[str, ...] = (
    "/sys/bus/pci/devices/*/driver",
    "/sys/class/drm/card[0-9]*/device",
    "/sys/class/drm/renderD*/device",
)
"""Patterns of links whose target's last part matters."""
NODES: tuple[str, ...] = (
    "/dev/kfd",
    "/dev/mkfd",
    "/dev/dri/card[0-9]*",
    "/dev/dri/renderD*",
    "/dev/nvidia[0-9]*",
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
)
"""Patterns of device nodes: their owner, group and mode decide who may use them."""
FOLDERS: tuple[str, ...] = (
    "/opt/hyhal",
    "/usr/local/hyhal",
    "/sys/module/amdgpu",
    "/sys/module/hydcu",
    "/sys/module/hycu",
    "/sys/module/i915",
    "/sys/module/xe",
    "/sys/module/nouveau",
    "/sys/module/nvidia",
    "/sys/module/nvidia_uvm",
)
"""Folders of which only the presence matters."""


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node: numeric owner and group, permission bits."""

    uid: int
    gid: int
    mode: int


@dataclass(frozen=True, slots=True)
class Sysroot:
    """What was found: absolute paths with texts, link targets (their last part), nodes and folders."""

    origin: str = "this machine"
    files: Mapping[str, str] = field(default_factory=dict)
    links: Mapping[str, str] = field(default_factory=dict)
    nodes: Mapping[str, DeviceNode] = field(default_factory=dict)
    folders: frozenset[str] = frozenset()

    def text(self, path: str) -> str:
        """The text of a file without blanks around it; empty when there is none."""
        return self.files.get(path, "").strip()

    def matching(self, pattern: str) -> list[str]:
        """Paths of files, links and nodes that fit a pattern in which `*` stays within one part."""
        found = [path for group in (self.files, self.links, self.nodes) for path in group]
        return sorted({path for path in found if _fits(path, pattern)}, key=natural)


def natural(text: str) -> list[tuple[int, str]]:
    """A key that sorts `renderD128` after `renderD9`."""
    parts: list[tuple[int, str]] = []
    digits = other = ""
    for letter in text:
        if letter.isascii() and letter.isdigit():
            parts += [(-1, other)] if other else []
            digits, other = digits + letter, ""
        else:
            parts += [(int(digits), "")] if digits else []
            digits, other = "", other + letter
    return [*parts, *([(int(digits), "")] if digits else []), *([(-1, other)] if other else [])]


def capture(
    root: Path = Path("/"),
    *,
    origin: str = "this machine",
    status: Callable[[Path], os.stat_result] = os.stat,
) -> Sysroot:
    """Read what matters below `root`; what is absent or unreadable is left out.

    `status` says what a node is, so that a captured tree needs no real nodes.
    """
    files = {name: text for name, path in _found(root, FILES) if (text := _read(path)) is not None}
    links = {name: target for name, path in _found(root, LINKS) if (target := _target(path))}
    nodes = {name: node for name, path in _found(root, NODES) if (node := _node(path, status)) is not None}
    folders = frozenset(name for name, path in _found(root, FOLDERS) if path.is_dir())
    return Sysroot(origin, files, links, nodes, folders)


def from_lines(lines: str, origin: str) -> Sysroot:
    """Read what a probe printed: one JSON object a line, texts in base64; raises BadInputError."""
    found = _Found()
    for number, line in enumerate(lines.splitlines(), 1):
        try:
            found.add(json.loads(line))
        except (ValueError, KeyError, TypeError) as error:
            raise BadInputError(
                "cannot read what the probe of the devices printed",
                where=f"{origin}, line {number}: {line[:120]}",
                why=str(error),
            ) from error
    return Sysroot(origin, found.files, found.links, found.nodes, frozenset(found.folders))


@dataclass(slots=True)
class _Found:
    """What a probe has said so far."""

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, DeviceNode] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)

    def add(self, said: Mapping[str, str]) -> None:
        """Take one object; raises ValueError, KeyError or TypeError."""
        kind, path = said["kind"], _plain(said["path"])
        if kind == "file":
            self.files[path] = _plain(said["text"])
        elif kind == "link":
            self.links[path] = PurePosixPath(_plain(said["text"])).name
        elif kind == "node":
            uid, gid, mode = _plain(said["text"]).split()
            self.nodes[path] = DeviceNode(int(uid), int(gid), int(mode, 8) & 0o777)
        elif kind == "folder":
            self.folders.add(path)
        else:
            raise ValueError(f"unknown kind {kind!r}")


def _plain(encoded: str) -> str:
    data = base64.b64decode(encoded, validate=True)
    return data[:MOST_BYTES].decode(errors="backslashreplace")


def _fits(path: str, pattern: str) -> bool:
    parts, wanted = path.split("/"), pattern.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _found(root: Path, patterns: tuple[str, ...]) -> list[tuple[str, Path]]:
    """Absolute names as on the machine itself, and where they are read."""
    return [
        ("/" + path.relative_to(root).as_posix(), path)
        for pattern in patterns
        for path in sorted(_glob(root, pattern.lstrip("/")))
    ]


def _glob(root: Path, pattern: str) -> list[Path]:
    """Like Path.glob, but unreadable folders are empty, and names are literal where they have no wildcard."""
    found = [root]
    for part in pattern.split("/"):
        if "*" not in part:
            found = [path / part for path in found if os.path.lexists(path / part)]
            continue
        found = [path / name for path in found for name in _names(path) if fnmatchcase(name, part)]
    return found


def _names(folder: Path) -> list[str]:
    try:
        return [path.name for path in folder.iterdir()]
    except OSError:
        return []


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            return stream.read(MOST_BYTES).decode(errors="backslashreplace")
    except OSError:
        return None


def _target(path: Path) -> str:
    try:
        return path.resolve().name if path.is_symlink() else ""
    except (OSError, RuntimeError):
        return ""


def _node(path: Path, status: Callable[[Path], os.stat_result]) -> DeviceNode | None:
    try:
        found = status(path)
    except OSError:
        return None
    if not stat.S_ISCHR(found.st_mode):
        return None
    return DeviceNode(found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode))
