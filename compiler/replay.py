"""Whether the kernels of a library are what their recorded traces make of their recorded loops."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from compiler.core.diagnostics import TkError
from compiler.core.files import sha256_bytes
from compiler.loops.text import parse_func
from compiler.runtime.elf import read_images
from compiler.schedule.trace import Trace
from compiler.stages.kernels import ReplayedKernel, replay_kernel
from compiler.targets import Target, get_target
from compiler.targets.device import SOURCE


def replay_library(path: Path, manifest: Mapping[str, Any]) -> tuple[list[bool], bool | None]:
    """For each kernel whether it replays to the same text, and whether the device's source is theirs.

    The second is None where there is no such source.
    """
    target = get_target(manifest["target"], manifest["arch"])
    made = [replayed(number, one, target) for number, one in enumerate(manifest["kernels"])]
    texts = [kernel.text if kernel is not None else None for kernel in made]
    same = [is_recorded(text, entry) for text, entry in zip(texts, manifest["kernels"], strict=True)]
    return same, _module_replays(path, texts, target)


def _module_replays(path: Path, texts: Sequence[str | None], target: Target) -> bool | None:
    """Whether the source that a device gets is the replayed text of all kernels behind its prelude."""
    if target.device is None:
        return None
    module = target.vocabulary.module([text or "" for text in texts]).encode()
    return all(data.endswith(module) for kind, _, data in read_images(path) if kind == SOURCE)


def replayed(number: int, entry: Mapping[str, Any], target: Target) -> ReplayedKernel | None:
    """What the recorded trace makes of the recorded function; None if it does not fit."""
    try:
        return replay_kernel(number, parse_func(entry["func"]), Trace.from_json(entry["trace"]), target)
    except TkError:
        return None


def is_recorded(text: str | None, entry: Mapping[str, Any]) -> bool:
    """Whether that is the recorded source text."""
    return text is not None and sha256_bytes(text.encode()) == entry["source_sha256"]
