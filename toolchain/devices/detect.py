"""Which accelerators a machine has, from PCI, DRM, KFD and the drivers' own files; no vendor tool is run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from toolchain.devices.arch import VENDORS, ChipTable, Vendor, decode_gfx_target_version, load_chips
from toolchain.devices.sysroot import DeviceNode, Sysroot, natural

PCI_VENDORS: Mapping[int, Vendor] = {0x10DE: "nvidia", 0x1002: "amd", 0x1D94: "hygon", 0x8086: "intel"}
_DISPLAY, _VGA, _3D, _PROCESSING, _CO_PROCESSOR = 0x0380, 0x0300, 0x0302, 0x1200, 0x0B40
_CLASSES: Mapping[Vendor, frozenset[int]] = {
    "nvidia": frozenset({_VGA, _3D, _DISPLAY}),
    "amd": frozenset({_VGA, _3D, _DISPLAY, _PROCESSING}),
    # Z100 and Z100L are display controllers, K100 and K100_AI co-processors (lspci of public systems). The
    # functions of Hygon's CPUs, which carry the same vendor id, have neither class.
    "hygon": frozenset({_VGA, _3D, _DISPLAY, _PROCESSING, _CO_PROCESSOR}),
    "intel": frozenset({_VGA, _3D, _DISPLAY}),
}
DRIVERS: Mapping[Vendor, tuple[str, ...]] = {
    "nvidia": ("nvidia",),
    "amd": ("amdgpu",),
    "hygon": ("hydcu", "hycu", "amdgpu"),
    "intel": ("i915", "xe"),
}
"""Kernel drivers that a vendor's compute stack works with."""
_HYHAL = "/opt/hyhal"


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator.

    address: PCI, `0000:03:00.0`. driver: kernel driver bound to it, empty when none. arch: `sm_70`, `gfx906`,
    `spir64`, empty when unknown; arch_source: who says so. nodes: device nodes of this accelerator alone.
    index: its number in the vendor's runtime (HIP's order, NVIDIA's minor), None when unknown.
    """

    vendor: Vendor
    address: str
    device_id: int
    pci_class: int
    name: str
    arch: str
    arch_source: str
    driver: str
    nodes: tuple[str, ...]
    index: int | None
    numa_node: int | None


@dataclass(frozen=True, slots=True)
class CdiSpec:
    """A file of the Container Device Interface: the device kind it serves, and the nodes it names."""

    path: str
    kind: str
    devices: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Inventory:
    """All accelerators of a machine, and what containers need to use them.

    origin: whose machine. nodes: every device node of a kind we know. versions: of kernel drivers.
    profiling_is_restricted: NVIDIA's driver keeps hardware counters for administrators. hyhal: folder of
    Hygon's user-space driver, or empty.
    """

    origin: str
    devices: tuple[Device, ...]
    nodes: Mapping[str, DeviceNode]
    versions: Mapping[str, str]
    cdi: tuple[CdiSpec, ...]
    profiling_is_restricted: bool
    hyhal: str

    def of(self, vendor: Vendor) -> tuple[Device, ...]:
        """The accelerators of one vendor, in the order of their addresses."""
        return tuple(one for one in self.devices if one.vendor == vendor)

    @property
    def vendors(self) -> tuple[Vendor, ...]:
        """Vendors of which there is at least one accelerator."""
        return tuple(one for one in VENDORS if self.of(one))

    def archs(self, vendor: Vendor) -> tuple[str, ...]:
        """Architectures of one vendor's accelerators that are known, each once."""
        return tuple(dict.fromkeys(one.arch for one in self.of(vendor) if one.arch))


@dataclass(frozen=True, slots=True)
class _KfdNode:
    """A GPU node of KFD's topology; `index` is HIP's number of it."""

    index: int
    gfx_target_version: int
    render_minor: int
    address: str


def detect(sysroot: Sysroot, chips: ChipTable | None = None) -> Inventory:
    """All accelerators that `sysroot` shows; an unknown device id leaves the architecture empty."""
    table = load_chips() if chips is None else chips
    drm = _drm_nodes(sysroot)
    kfd = _kfd_nodes(sysroot)
    devices = [
        _device(sysroot, address, vendor, drm.get(address, ()), kfd, table)
        for address, vendor in _accelerators(sysroot)
    ]
    return Inventory(
        origin=sysroot.origin,
        devices=tuple(devices),
        nodes=dict(sysroot.nodes),
        versions=_versions(sysroot),
        cdi=tuple(_cdi(sysroot)),
        profiling_is_restricted=_profiling_is_restricted(sysroot),
        hyhal=_HYHAL if _HYHAL in sysroot.folders else "",
    )


def _accelerators(sysroot: Sysroot) -> Iterable[tuple[str, Vendor]]:
    for path in sorted(sysroot.matching("/sys/bus/pci/devices/*/vendor")):
        address = path.split("/")[-2]
        vendor = PCI_VENDORS.get(_hex(sysroot.text(path)))
        if vendor is not None and _pci(sysroot, address, "class") >> 8 in _CLASSES[vendor]:
            yield address, vendor


def _device(
    sysroot: Sysroot,
    address: str,
    vendor: Vendor,
    drm: tuple[str, ...],
    kfd: list[_KfdNode],
    chips: ChipTable,
) -> Device:
    device_id = _pci(sysroot, address, "device")
    chip = chips.get((vendor, device_id))
    node = next((one for one in kfd if _is_same(one, address, drm)), None)
    arch, source = (chip.arch, chip.source) if chip is not None else ("", "")
    if node is not None and (said := decode_gfx_target_version(node.gfx_target_version)):
        arch, source = said, "gfx_target_version of the kernel driver"
    if vendor == "intel" and not arch:
        arch, source = "spir64", "compilers know one architecture of Intel's GPUs"
    own, index = drm, None if node is None else node.index
    if vendor == "nvidia":
        index = _nvidia_minor(sysroot, address)
        own = (*((f"/dev/nvidia{index}",) if index is not None else ()), *drm)
    return Device(
        vendor=vendor,
        address=address,
        device_id=device_id,
        pci_class=_pci(sysroot, address, "class") >> 8,
        name=_name(sysroot, address, vendor, "" if chip is None else chip.name),
        arch=arch,
        arch_source=source,
        driver=sysroot.links.get(f"/sys/bus/pci/devices/{address}/driver", ""),
        nodes=own,
        index=index,
        numa_node=_numa(sysroot.text(f"/sys/bus/pci/devices/{address}/numa_node")),
    )


def _name(sysroot: Sysroot, address: str, vendor: Vendor, chip: str) -> str:
    """What the driver calls it, else the chip."""
    said = _field(sysroot.text(f"/proc/driver/nvidia/gpus/{address}/information"), "Model")
    return said if vendor == "nvidia" and said else chip


def _drm_nodes(sysroot: Sysroot) -> dict[str, tuple[str, ...]]:
    """Nodes below /dev/dri by the PCI address of their device: the card, then the render node."""
    found: dict[str, tuple[str, ...]] = {}
    for kind in ("card[0-9]*", "renderD*"):
        for path in sysroot.matching(f"/sys/class/drm/{kind}/device"):
            name = path.split("/")[-2]
            if "-" not in name:  # card0-HDMI-A-1 is a connector
                address = sysroot.links[path]
                found[address] = (*found.get(address, ()), f"/dev/dri/{name}")
    return found


def _kfd_nodes(sysroot: Sysroot) -> list[_KfdNode]:
    """GPU nodes in the order of their numbers, which without the CPU nodes is HIP's order."""
    found: list[_KfdNode] = []
    for path in sysroot.matching("/sys/class/kfd/kfd/topology/nodes/*/properties"):
        facts = dict(_pairs(sysroot.text(path)))
        if facts.get("simd_count", 0) == 0:  # a CPU
            continue
        location, domain = facts.get("location_id", 0), facts.get("domain", 0)
        found.append(
            _KfdNode(
                index=len(found),
                gfx_target_version=facts.get("gfx_target_version", 0),
                render_minor=facts.get("drm_render_minor", 0),
                address=f"{domain:04x}:{location >> 8 & 0xFF:02x}:{location >> 3 & 0x1F:02x}.{location & 7}"
                if location
                else "",
            )
        )
    return found


def _is_same(node: _KfdNode, address: str, drm: tuple[str, ...]) -> bool:
    if node.render_minor:
        return f"/dev/dri/renderD{node.render_minor}" in drm
    return node.address == address


def _nvidia_minor(sysroot: Sysroot, address: str) -> int | None:
    text = _field(sysroot.text(f"/proc/driver/nvidia/gpus/{address}/information"), "Device Minor")
    return int(text) if text.isascii() and text.isdigit() else None


def _versions(sysroot: Sysroot) -> dict[str, str]:
    found = {}
    if match := re.search(r"Kernel Module\b.*?\s(\d+(?:\.\d+)+)\s", sysroot.text(_NVIDIA_VERSION) + " "):
        found["nvidia"] = match[1]
    for module in ("amdgpu", "hydcu", "hycu"):
        if text := sysroot.text(f"/sys/module/{module}/version"):
            found[module] = text
    return found


_NVIDIA_VERSION = "/proc/driver/nvidia/version"


def _profiling_is_restricted(sysroot: Sysroot) -> bool:
    return _field(sysroot.text("/proc/driver/nvidia/params"), "RmProfilingAdminOnly") == "1"


def _cdi(sysroot: Sysroot) -> Iterable[CdiSpec]:
    """Specifications in JSON or YAML; a file that is neither is passed over, as engines do."""
    for path in [*sysroot.matching("/etc/cdi/*"), *sysroot.matching("/var/run/cdi/*")]:
        document = _document(path, sysroot.text(path))
        if not isinstance(document, Mapping) or not isinstance(document.get("kind"), str):
            continue
        entries = [one for one in _list(document.get("devices")) if isinstance(one, Mapping)]
        edits = [document.get("containerEdits"), *(one.get("containerEdits") for one in entries)]
        nodes = [
            str(node["path"])
            for edit in edits
            if isinstance(edit, Mapping)
            for node in _list(edit.get("deviceNodes"))
            if isinstance(node, Mapping) and "path" in node
        ]
        names = tuple(f"{document['kind']}={one['name']}" for one in entries if "name" in one)
        yield CdiSpec(path, document["kind"], names, tuple(dict.fromkeys(nodes)))


def _document(path: str, text: str) -> object:
    import yaml

    try:
        return json.loads(text) if path.endswith(".json") else yaml.safe_load(text)
    except (ValueError, yaml.YAMLError, RecursionError):
        return None


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _pci(sysroot: Sysroot, address: str, name: str) -> int:
    return _hex(sysroot.text(f"/sys/bus/pci/devices/{address}/{name}"))


def _hex(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        return -1


def _numa(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() else None  # -1: no NUMA node


def _pairs(text: str) -> Iterable[tuple[str, int]]:
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        if value.strip().isascii() and value.strip().isdigit():
            yield name, int(value)


def _field(text: str, name: str) -> str:
    """The value of a `Name: value` line."""
    for line in text.splitlines():
        label, colon, value = line.partition(":")
        if colon and label.strip() == name:
            return value.strip()
    return ""


def natural_order(names: Iterable[str]) -> tuple[str, ...]:
    """Names in the order that people expect: renderD9 before renderD128."""
    return tuple(sorted(dict.fromkeys(names), key=natural))
