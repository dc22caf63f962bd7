"""Networks to compile: architectures with seeded random weights, and originals from the ONNX model zoo.

`networks()` is a table and costs nothing; numpy and onnx are imported by `make` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from compiler import Progress, UsageError, did_you_mean, silent
from toolchain.zoo import catalog
from toolchain.zoo.record import UNRESOLVED, Network, Original

if TYPE_CHECKING:
    from toolchain.zoo.download import Fetched

__all__ = ["UNRESOLVED", "Network", "Original", "fetch", "make", "network", "networks"]

_BY_NAME: Mapping[str, Network] = MappingProxyType({one.name: one for one in catalog.ALL})


def networks() -> Mapping[str, Network]:
    """All networks by name, in the order of the table."""
    return _BY_NAME


def network(name: str) -> Network:
    """The record of one network. Raises UsageError, with the closest name, when there is none."""
    if name not in _BY_NAME:
        raise UsageError(
            f"no network is called {name!r}",
            hint=did_you_mean(name, _BY_NAME) or "list them with: tk zoo list",
        )
    return _BY_NAME[name]


def make(name: str, path: Path, *, progress: Progress = silent) -> Network:
    """Write network `name` with seeded random weights to `path`; the same bytes on every machine.

    Above 2 GiB the constants go to `path` + `.data`. Raises UsageError for an unknown name, HostError when
    the onnx package lacks the architecture or the place cannot be written.
    """
    record = network(name)
    from toolchain.zoo import build, write

    write.write_model(build.draft(record), path, progress=progress)
    return record


def fetch(name: str, path: Path, *, progress: Progress = silent) -> Fetched:
    """Download the original of network `name` to `path` and check it; see `toolchain.zoo.download`.

    Raises UsageError for an unknown name or a network without original, HostError without a connection,
    BadInputError when the file is not the pinned one.
    """
    record = network(name)
    from toolchain.zoo import download

    return download.fetch(record, path, progress=progress)
