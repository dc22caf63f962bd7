"""Whether a host's drivers and accelerators fit an image: the oldest driver that it runs on, its archs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from toolchain.devices.arch import VENDORS, Vendor
from toolchain.devices.detect import DRIVERS, Inventory

if TYPE_CHECKING:
    from toolchain.recipes.resolve import Resolution

_UPGRADE: Mapping[Vendor, str] = {
    "nvidia": "install a newer NVIDIA driver on the host, or take an image with an older CUDA",
    "amd": "install a newer amdgpu driver on the host, or take an image with an older ROCm",
    "hygon": "install a newer DCU driver (rock-*.run), or take an image with an older DTK",
    "intel": "use a newer kernel on the host, or take an image with an older oneAPI",
}


@dataclass(frozen=True, slots=True)
class Fit:
    """One thing about a host and an image: `ok`, `warning` or `problem`; what, why it matters, what helps."""

    state: Literal["ok", "warning", "problem"]
    what: str
    cause: str = ""
    fix: str = ""
    source: str = ""


def vendor_of(resolution: Resolution) -> Vendor | None:
    """Whose accelerators an image is for; None when it needs none."""
    return next((one for one in VENDORS if one == resolution.vendor), None)


def check_fit(inventory: Inventory, resolution: Resolution) -> tuple[Fit, ...]:
    """How the host's driver and accelerators fit an image; nothing for an image that needs none."""
    vendor = vendor_of(resolution)
    if vendor is None or not inventory.of(vendor):
        return ()
    return (*_driver(inventory, resolution, vendor), *_archs(inventory, resolution, vendor))


def _driver(inventory: Inventory, resolution: Resolution, vendor: Vendor) -> Iterable[Fit]:
    floor = getattr(resolution.stack.row, "driver", None)
    if floor is None:
        return
    name = resolution.name
    has = next((inventory.versions[one] for one in DRIVERS[vendor] if one in inventory.versions), "")
    if not has:
        yield Fit(
            "warning",
            f"{name} needs a driver of at least {floor.minimum}; this one does not say its version",
            source=floor.source,
        )
    elif _numbers(has) < _numbers(floor.minimum):
        yield Fit(
            "problem",
            f"the driver {has} is older than {floor.minimum}, the oldest that {name} runs on",
            cause="programs of a newer stack end with an error when they start",
            fix=_UPGRADE[vendor],
            source=floor.source,
        )
    elif floor.full is not None and _numbers(has) < _numbers(floor.full):
        yield Fit(
            "warning",
            f"the driver {has} runs {name} in part; everything from {floor.full}",
            cause="features of later minor versions are missing",
            fix=_UPGRADE[vendor],
            source=floor.source,
        )
    else:
        yield Fit("ok", f"the driver {has} runs {name} (from {floor.minimum})", source=floor.source)


def _archs(inventory: Inventory, resolution: Resolution, vendor: Vendor) -> Iterable[Fit]:
    row = resolution.stack.row
    known = set(getattr(row, "archs", ())) | set(getattr(row, "arch_aliases", {}))
    if not known:
        return
    for arch in inventory.archs(vendor):
        if arch not in known:
            yield Fit(
                "warning",
                f"{resolution.name} does not list {arch}, which an accelerator here is",
                cause=f"it lists {', '.join(sorted(known))}",
                fix="take an image that does (`tk image list`), or compile for another arch",
            )


def _numbers(version: str) -> tuple[int, ...]:
    """The leading numbers of a version: `rock-` and `-V1.5` around `5.7.1-6.2.26` do not count."""
    found: list[int] = []
    for part in version.replace("-", ".").split("."):
        digits = "".join(letter for letter in part if letter.isascii() and letter.isdigit())
        if not digits or digits != part:
            break
        found.append(int(digits))
    return tuple(found)
