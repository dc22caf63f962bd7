"""Captured machines from compact text: as data, and as a tree of files laid out as sysfs does.

A line is `pci ADDRESS key=value...`, `kfd NUMBER key=value...`, `node PATH UID:GID MODE`, `folder PATH` or
`file PATH`, whose text follows indented by two blanks. Real machines were their models; serials are made up.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from toolchain.devices.sysroot import DeviceNode, Sysroot, capture

TREES = Path(__file__).parents[1] / "unit" / "devices" / "trees"


@dataclass(slots=True)
class Tree:
    """A machine to build: texts, links and folders by absolute path, nodes by what stat says of them."""

    files: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    nodes: dict[str, DeviceNode] = field(default_factory=dict)
    folders: list[str] = field(default_factory=list)

    def build(self, root: Path) -> None:
        """Write everything below `root`; nodes become empty files."""
        for name in self.folders:
            (root / name.lstrip("/")).mkdir(parents=True, exist_ok=True)
        for name, text in {**self.files, **dict.fromkeys(self.nodes, "")}.items():
            path = root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        for name, target in self.links.items():
            path = root / name.lstrip("/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.symlink_to(os.path.relpath(root / target.lstrip("/"), path.parent))

    def status(self, root: Path, path: Path) -> os.stat_result:
        """What stat would say of a node below `root`."""
        node = self.nodes["/" + path.relative_to(root).as_posix()]
        return os.stat_result((stat.S_IFCHR | node.mode, 0, 0, 1, node.uid, node.gid, 0, 0, 0, 0))


def machine(name: str, root: Path) -> Sysroot:
    """The captured machine `name`, built below `root` and read from there."""
    tree = parse((TREES / f"{name}.tree").read_text())
    if not root.exists():
        tree.build(root)
    return capture(root, origin="this machine", status=lambda path: tree.status(root, path))


def names() -> list[str]:
    """All captured machines."""
    return sorted(path.stem for path in TREES.glob("*.tree"))


def parse(text: str) -> Tree:
    tree = Tree()
    for words, body in _entries(text):
        match words:
            case ["pci", address, *facts]:
                _pci(tree, address, dict(one.split("=", 1) for one in facts))
            case ["kfd", number, *facts]:
                lines = [one.replace("=", " ", 1) for one in facts]
                folder = f"/sys/devices/virtual/kfd/kfd/topology/nodes/{number}"
                tree.files[f"{folder}/properties"] = "\n".join(lines) + "\n"
                tree.links["/sys/class/kfd/kfd"] = "/sys/devices/virtual/kfd/kfd"
            case ["node", path, owner, mode]:
                uid, gid = owner.split(":")
                tree.nodes[path] = DeviceNode(int(uid), int(gid), int(mode, 8))
            case ["folder", path]:
                tree.folders.append(path)
            case ["file", path]:
                tree.files[path] = body
            case _:
                raise ValueError(words)
    return tree


def _pci(tree: Tree, address: str, facts: dict[str, str]) -> None:
    folder = f"/sys/devices/pci0000:00/{address}"
    tree.links[f"/sys/bus/pci/devices/{address}"] = folder
    for key in ("vendor", "device", "class"):
        tree.files[f"{folder}/{key}"] = facts[key] + "\n"
    tree.files[f"{folder}/numa_node"] = facts.get("numa", "-1") + "\n"
    if "driver" in facts:
        tree.folders.append(f"/sys/bus/pci/drivers/{facts['driver']}")
        tree.links[f"{folder}/driver"] = f"/sys/bus/pci/drivers/{facts['driver']}"
    for name in facts.get("drm", "").split(","):
        if name:
            tree.folders.append(f"{folder}/drm/{name}")
            tree.links[f"{folder}/drm/{name}/device"] = folder
            tree.links[f"/sys/class/drm/{name}"] = f"{folder}/drm/{name}"
            tree.folders.append(f"{folder}/drm/{name}/{name}-VGA-1")
            tree.links[f"/sys/class/drm/{name}-VGA-1"] = f"{folder}/drm/{name}/{name}-VGA-1"
            tree.links[f"{folder}/drm/{name}/{name}-VGA-1/device"] = f"{folder}/drm/{name}"


def _entries(text: str) -> Iterator[tuple[list[str], str]]:
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    for place, line in enumerate(lines):
        if line.startswith("  "):
            continue
        body = []
        for more in lines[place + 1 :]:
            if not more.startswith("  "):
                break
            body.append(more[2:])
        yield line.split(), "\n".join(body) + "\n" if body else ""
