"""What the languages of devices have in common: one module of kernels per model, built into images.

A module is the text of all device functions of a model. A language builds it into images: the text itself,
an intermediate form or binaries of one architecture each. The model library carries them; its runtime loads
the one that fits the device it finds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from compiler.core.settings import Settings
    from compiler.render.launch import Launch
    from compiler.targets.target import Target

__all__ = ["DeviceLanguage", "Image", "Images", "Module", "Resource"]

SOURCE = "source"
"""Kind of the image that every language has: the module's text."""


@dataclass(frozen=True, slots=True)
class Module:
    """All device functions of a model: source text with its prelude, and every launch.

    model: the first digits of the model's hash, where names of kernels are global in a process.
    """

    text: str
    launches: tuple[Launch, ...]
    model: str


@dataclass(frozen=True, slots=True)
class Image:
    """One built form of a module, of a kind that the device's runtime knows, for one arch (or any: empty)."""

    kind: str
    arch: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Resource:
    """What one device function needs on one architecture, as far as its toolchain tells; sizes in bytes.

    spills: stores of registers that found no room. private_bytes: memory of each thread, for spilled
    registers and arrays.
    """

    kernel: str
    arch: str
    registers: int | None = None
    spills: int | None = None
    shared_bytes: int | None = None
    private_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Images:
    """What a build made, with which toolchain, what the kernels need, and what the user should know."""

    images: tuple[Image, ...]
    toolchain: str
    resources: tuple[Resource, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceLanguage:
    """How a target's modules are built and run.

    runtime: the files in `runtime/src/devices` that the library is linked with. suffix: of a module's file.
    build: makes the images; raises HostError when the toolchain is missing and BuildError when it refuses.
    identity: of the toolchain that `build` would use: it changes whenever the images might, so that the cache
    may hold finished libraries; raises HostError when the toolchain is missing. None: none are kept.
    default_streams: DLPack's numbers of those that a caller may hand over without a pointer.
    """

    runtime: tuple[str, ...]
    suffix: str
    build: Callable[[Module, Target, Settings], Images]
    identity: Callable[[Target, Settings], str] | None = None
    default_streams: tuple[int, ...] = ()
