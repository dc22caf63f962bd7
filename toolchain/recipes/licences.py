"""What an image is made of, and whether all of it may be passed on to anybody."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from toolchain.recipes.resolve import Component, Resolution
from toolchain.recipes.schema import Licence

UNKNOWN = "no licence stated"


@dataclass(frozen=True, slots=True)
class LicencedPart:
    """A part of an image; its `licence` is None where its recipe states none."""

    name: str
    licence: Licence | None

    @property
    def terms(self) -> str:
        """What its licence is called."""
        return UNKNOWN if self.licence is None else self.licence.name

    @property
    def redistributable(self) -> bool:
        """Whether it may be passed on; what states no licence may not."""
        return self.licence is not None and self.licence.redistributable


def parts_of(found: Resolution) -> tuple[LicencedPart, ...]:
    """The system, the stack and the components of a resolution."""
    system = found.system
    return (
        LicencedPart(f"{system.system}-{system.version}", system.licence),
        *(_part(one) for one in (found.stack, *found.components)),
    )


def kept_private(parts: Iterable[LicencedPart]) -> Iterator[LicencedPart]:
    """Those that may not be passed on."""
    return (one for one in parts if not one.redistributable)


def _part(component: Component) -> LicencedPart:
    return LicencedPart(f"{component.kind}-{component.version}", component.row.licence)
