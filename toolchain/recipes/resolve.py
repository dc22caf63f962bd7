"""What a typed name stands for: stack, base, components, archs, and what the rules say about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolchain.recipes.schema import Base, Build, Layer, Release, StackRow, System


@dataclass(frozen=True, slots=True)
class Component:
    """One chosen thing: the stack's version, or a component added to it.

    row: the checked recipe row. layer: what it adds to the image; conditions decided, placeholders filled in.
    build: how it is built in an image of its own, decided likewise; None when it is only installed.
    where: file:line of the row.
    """

    kind: str
    version: str
    row: StackRow | Release
    layer: Layer
    build: Build | None
    where: str


@dataclass(frozen=True, slots=True)
class Finding:
    """What a rule says about a combination; `nearest` is the closest combination that no rule refuses."""

    rule: str
    verdict: Literal["refuse", "warn"]
    because: str
    source: str
    nearest: str


@dataclass(frozen=True, slots=True)
class Resolution:
    """What a typed name stands for.

    asked: as typed; name: canonical, `rocm-5.4.3+dpcpp-2022-12`. provides, prefixes: of system, base, stack
    and components together. choices: (what was chosen, why). allowed: refusing rules waived with `--allow`.
    recipe_hash: sha256 of everything in the recipes that decides the image, in hex.
    """

    asked: str
    name: str
    stack: Component
    base: Base
    system: System
    system_layer: Layer
    components: tuple[Component, ...]
    archs: tuple[str, ...]
    provides: Mapping[str, str]
    prefixes: Mapping[str, str]
    findings: tuple[Finding, ...]
    allowed: tuple[str, ...]
    choices: tuple[tuple[str, str], ...]
    recipe_hash: str
