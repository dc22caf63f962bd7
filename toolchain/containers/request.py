"""What commands ask of containers. Imports nothing heavy, as `tk --help` imports it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from toolchain.devices.wishes import Extras, Wishes
from toolchain.engine.choice import ANY_ENGINE, EngineChoice
from toolchain.images.selection import NO_SELECTION, Selection
from toolchain.options import Role


@dataclass(frozen=True, slots=True)
class Word:
    """How a parameter is said: its long option, empty for an argument; its role where it names a file.

    negation: the option that says no to it, where there is one.
    """

    option: str = ""
    role: Role | None = None
    negation: str = ""


@dataclass(frozen=True, slots=True)
class ContainerLimits:
    """Bytes that what runs in a container may hold in memory, and may have written; None: any."""

    memory: int | None = None
    disk: int | None = None


NO_LIMITS = ContainerLimits()


@dataclass(frozen=True, slots=True)
class Asked:
    """What the user says of devices: words of `--devices`, numbers and profiling, a captured machine."""

    devices: tuple[str, ...] = ("auto",)
    wishes: Wishes = field(default_factory=Wishes)
    assumed: Path | None = None


@dataclass(frozen=True, slots=True)
class RunPlace:
    """Where a command runs: in an image, by a recipe's name or a reference, else on this machine.

    selection: goes with a recipe's name. build: without asking. asked: what is said of devices. explain: show
    the container's options and run nothing; that needs no engine. limits: of what runs there.
    """

    image: str = ""
    build: bool = False
    trust_first_use: bool = False
    no_container: bool = False
    engine: EngineChoice = ANY_ENGINE
    selection: Selection = NO_SELECTION
    asked: Asked = field(default_factory=Asked)
    explain: bool = False
    limits: ContainerLimits = NO_LIMITS


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for.

    image: a recipe's name, or a reference of an image on the engine. devices: `auto` (those of the image's
    vendor that are there), `none`, or vendors. folder: mounted at `/work` when the engine is of this machine.
    assumed: a captured machine to take in place of the engine's. as_root: as root of the container, who has
    no more capabilities than others.
    """

    image: str = ""
    argv: tuple[str, ...] = ()
    devices: tuple[str, ...] = ("auto",)
    wishes: Wishes = field(default_factory=Wishes)
    network: str = "bridge"
    shm_size: str = ""
    folder: Path | None = None
    assumed: Path | None = None
    selection: Selection = NO_SELECTION
    build: bool = False
    trust_first_use: bool = False
    tty: bool = False
    as_root: bool = False
    extras: Extras = field(default_factory=Extras)
