"""A record of what was verified where: one line of JSON for each network on each device.

A line holds for the same model, the same kernels (the digest of the text that the device gets) and the same
device: a later run with the same file does not verify these again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import compiler
from compiler.core.files import sha256_bytes
from compiler.runtime.elf import read_images
from compiler.targets.device import SOURCE


@dataclass(frozen=True)
class Subject:
    """What is verified: by its content, and where."""

    network: str
    target: str
    device: str
    model_sha256: str
    kernels_sha256: str


@dataclass(frozen=True)
class Verified:
    """That it passed; `error` is the largest difference as a part of the output's scale."""

    subject: Subject
    reference: str
    error: float
    seconds: float

    def line(self) -> str:
        one = self.subject
        return (
            f"{one.network} on {one.target}, {one.device}: within tolerance of {self.reference}, "
            f"error {self.error:.1e}, {self.seconds:.0f} s, kernels {one.kernels_sha256[:12]}"
        )


def subject_of(library: Path, network: str, device: str) -> Subject:
    """A network's library on a device."""
    manifest = compiler.manifest_of(library)
    (text,) = {data for kind, _, data in read_images(library) if kind == SOURCE}
    return Subject(network, manifest["target"], device, manifest["model_sha256"], sha256_bytes(text))


def recorded(path: Path | None, subject: Subject) -> Verified | None:
    """What the file at `path` has about a subject; there may be no file yet."""
    if path is None or not path.exists():
        return None
    for line in path.read_text().splitlines():
        entry = json.loads(line)
        if entry["subject"] == asdict(subject):
            return Verified(**{**entry, "subject": subject})
    return None


def record(path: Path | None, verified: Verified) -> None:
    """Add a line; processes that test side by side may share the file."""
    if path is not None:
        with path.open("a") as stream:
            stream.write(json.dumps(asdict(verified), sort_keys=True) + "\n")
