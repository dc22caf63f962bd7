"""Loads libraries also where their device is the emulator, whose own library is made first.

For verification those of other processors, too, each run of which is a program in QEMU.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler.core.diagnostics import BadInputError
from compiler.core.settings import EMULATOR, EMULATORS, Settings, load_settings
from compiler.runtime.elf import machine_of, read_images
from compiler.runtime.loader import Model, manifest_of

if TYPE_CHECKING:
    from compiler.targets.target import Target
    from compiler.verify.foreign import ForeignModel


def load(path: Path | str, *, threads: int | None = None, device: str | None = None) -> Model:
    """Load the library `path` and prepare it for running.

    `device` names the device of a library for one (`0`, `gpu:1`, a part of its name ...), by default what
    TK_DEVICE says, else the first; `emulator` runs kernels of CUDA and HIP on this machine's processors, with
    checks, after compiling them for it, `emulator-unchecked` without. Raises BadInputError when the file is
    no model library or has no code for the device, HostError when this machine cannot run it, and BuildError
    when a compiler refuses kernels.
    """
    settings = load_settings()
    threads = threads if threads is not None else settings.threads
    return Model(Path(path), threads=threads, device=_selector_of(Path(path), device, settings))


def load_anywhere(
    path: Path, *, threads: int | None = None, device: str | None = None
) -> Model | ForeignModel:
    """As `load`, also for another processor than this machine's, which is then emulated."""
    if machine_of(path) == platform.machine():
        return load(path, threads=threads, device=device)
    from compiler.verify.foreign import ForeignModel

    settings = load_settings()
    return ForeignModel(path, settings, threads if threads is not None else settings.threads)


def _selector_of(library: Path, device: str | None, settings: Settings) -> str | None:
    """What the runtime is told for a device that a user names: for the emulator, where its library is."""
    name = device or settings.device
    if name not in EMULATORS or (device is None and not read_images(library)):
        return device  # what TK_DEVICE says is no concern of kernels that are the host's code
    from compiler.verify.emulate import emulation_of  # a compiler's business, needed for this alone

    target = emulated_target(library, manifest_of(library))
    lanes = target.facts.subgroup_sizes[0]
    return f"{EMULATOR}:{emulation_of(library, settings, lanes, checks=name == EMULATOR)}"


def emulated_target(library: Path, manifest: Mapping[str, Any]) -> Target:
    """The target of a library; raises BadInputError when the emulator cannot run its kernels."""
    from compiler.targets import get_target

    target = get_target(manifest.get("target", ""), manifest.get("arch"))
    if target.device is None or EMULATOR not in target.device.runtime:
        raise BadInputError(
            "this library has nothing for the emulator",
            where=str(library),
            why=f"it is for {manifest.get('target')}; the emulator runs kernels in CUDA and HIP",
            hint="compile the model for a GPU in CUDA or HIP",
        )
    return target
