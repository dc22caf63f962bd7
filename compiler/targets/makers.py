"""Whose an accelerator is: AMD's and Hygon's share HIP, libraries and an architecture."""

from __future__ import annotations

import re
from collections.abc import Callable

from compiler.core.answer import Answer, not_known
from compiler.core.settings import Settings
from compiler.targets.probe import ProbedDevice
from compiler.targets.readiness import Driver, device_runs, devices_of

AMD, HYGON = 0x1002, 0x1D94
"""Identifiers of makers on the PCI bus."""

_AMD_PROCESSORS = 0x1022
"""That of AMD's processors, whose graphics may carry it."""

_SHARED_ARCH = "gfx906"
"""AMD's MI50 and Radeon VII, and Hygon's Z100."""

# DTK's names: Z100 is gfx906 to compilers (gfx916 on the card), K100 gfx926, K100_AI gfx928, BW1000 gfx936.
_OF_HYGON = re.compile(r"hygon|\bdcu|\bz100|\bk100|\bbw1000|gfx9[123][68]", re.IGNORECASE)
_OF_AMD = re.compile(r"radeon|instinct|vega|\bmi[0-9]+", re.IGNORECASE)


def maker_of(device: ProbedDevice) -> int | None:
    """AMD or HYGON; None where nothing tells: of a gfx906 whose name says no more, when the bus was not read.

    OpenCL gives a maker, too, but DTK's driver may give AMD's.
    """
    if device.vendor == HYGON or _OF_HYGON.search(f"{device.name} {device.arch}"):
        return HYGON
    shared = _SHARED_ARCH in device.name
    told = device.vendor in (AMD, _AMD_PROCESSORS) and not (device.platform and shared)
    other_arch = "gfx" in device.name and not shared
    return AMD if told or other_arch or _OF_AMD.search(device.name) else None


def made_by(maker: int) -> Callable[[ProbedDevice], bool]:
    """Whether a device is certainly one maker's."""
    return lambda device: maker_of(device) == maker


def device_of_runs(
    driver: Driver, title: str, maker: int, fits: Callable[[ProbedDevice], bool] = lambda _: True
) -> Callable[[Settings], Answer]:
    """Whether a driver offers a device of a maker; not known where it may be the other one's."""
    certain = device_runs(driver, title, lambda device: fits(device) and maker_of(device) == maker)

    def runs(settings: Settings) -> Answer:
        answer, found = certain(settings), devices_of(driver, settings)
        if answer or isinstance(found, str):
            return answer
        doubtful = [one.name for one in found if fits(one) and maker_of(one) is None]
        if not doubtful:
            return answer
        return not_known(f"{', '.join(doubtful)}: its name does not tell whether it is AMD's or Hygon's")

    return runs
