"""Networks to compile: architectures with seeded random weights, and originals from the ONNX model zoo.

`networks()` is a table and costs nothing; numpy and onnx are imported by `make` alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from compiler import Progress, UsageError, did_you_mean, silent
from toolchain.zoo import catalog, decoders, exporters
from toolchain.zoo.record import UNRESOLVED, Network, Original

if TYPE_CHECKING:
    from toolchain.site import SiteConfig
    from toolchain.zoo.download import Fetched

__all__ = [
    "UNRESOLVED",
    "Network",
    "Original",
    "exported",
    "fetch",
    "make",
    "network",
    "networks",
    "of_free_sizes",
    "trained",
]

_NETWORKS: Mapping[str, Network] = MappingProxyType({one.name: one for one in catalog.ALL})
_EXPORTED: Mapping[str, Network] = MappingProxyType({one.name: one for one in exporters.ALL})
_FREE: Mapping[str, Network] = MappingProxyType({one.name: one for one in decoders.ALL})
_BY_NAME: Mapping[str, Network] = MappingProxyType({**_NETWORKS, **_EXPORTED, **_FREE})
_REVISIONS: Mapping[str, tuple[Network, Original]] = MappingProxyType(
    {original.name: (one, original) for one in catalog.ALL for original in one.originals}
)


def networks() -> Mapping[str, Network]:
    """The networks of fixed size by name, in the order of the table."""
    return _NETWORKS


def exported() -> Mapping[str, Network]:
    """Tiny models with free dimensions, as exporters wrote them, by name."""
    return _EXPORTED


def of_free_sizes() -> Mapping[str, Network]:
    """Networks of a usual size with free dimensions, by name."""
    return _FREE


def network(name: str) -> Network:
    """The record of one network. Raises UsageError, with the closest name, when there is none."""
    if name not in _BY_NAME:
        if name in _REVISIONS:
            own = _REVISIONS[name][0].name
            raise UsageError(
                f"{name!r} is a revision of the trained {own}, not an architecture",
                hint=f"tk zoo fetch {name}, or with random weights: tk zoo make {own}",
            )
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


def trained(name: str) -> tuple[Network, Original]:
    """The network, and the trained model, that `name` means: the network's own, or the revision called so.

    Raises UsageError, with the closest name, when there is none, and for a network that has no original.
    """
    if name in _REVISIONS and name not in _BY_NAME:
        return _REVISIONS[name]
    if name not in _BY_NAME and (close := did_you_mean(name, {*_BY_NAME, *_REVISIONS})):
        raise UsageError(f"no network is called {name!r}", hint=close)
    record = network(name)
    if record.original is None:
        raise UsageError(
            f"the network {name!r} has no original in the ONNX model zoo",
            why="it is built here",
            hint=f"make it instead: tk zoo make {name}",
        )
    return record, record.original


def fetch(name: str, path: Path, *, site: SiteConfig, progress: Progress = silent) -> Fetched:
    """Download the trained model `name` to `path` and check it; see `trained` and `toolchain.zoo.download`.

    Raises UsageError for an unknown name or a network without original, HostError without a connection,
    BadInputError when the file is not the pinned one.
    """
    record, original = trained(name)
    from toolchain.zoo import download

    return download.download_model(record, original, path, site=site, progress=progress)
