"""Volumes that outlive a job: the bundled compiler, by content, and a cache for each user."""

from __future__ import annotations

import contextlib
import io
import tarfile
from collections.abc import Iterable

from compiler import private_stream
from toolchain.containers import packages
from toolchain.engine import labels
from toolchain.engine.client import Engine

BUNDLE = "/opt/tk"
"""Where the bundled compiler is in a container, read only: `packages/` and `source/`."""
CACHE = "/var/cache/tk"
"""Where a user's cache is in a container."""
_COMPLETE = "complete"
_CHUNK_BYTES = 1 << 20
_KEPT = 3
"""Compilers that stay: a team's machine may serve several versions of `tk`."""


def compiler_name(python: str, extra: str = "") -> str:
    """Name of the volume with the bundled compiler for this Python, by its content."""
    return f"tk-compiler-{packages.bundle_key(python, extra)[:16]}"


def cache_name(uid: int) -> str:
    """Name of a user's cache volume."""
    return f"tk-cache-{uid}"


def compiler_volume(
    engine: Engine, image: str, python: str, *, extra: str = "", index: str | None = None
) -> str:
    """Name of the volume with the bundled compiler for this Python, filled when it is not there yet.

    The name carries the content's key, and the last file written is a mark: a volume whose filling was cut
    off is filled again. `image` is any image of the engine: a container of it lends its mount, nothing is
    run. `extra`: with the packages of an extra of the project. Raises HostError.
    """
    key = packages.bundle_key(python, extra)
    name = compiler_name(python, extra)
    with engine.guard(f"make the volume {name}"):
        engine.api.create_volume(name, labels={labels.VOLUME: "compiler"})
    mount = {"Type": "volume", "Source": name, "Target": BUNDLE}
    with engine.container(image, ["none"], host={"mounts": [mount]}) as container:
        if engine.read_in(container, f"{BUNDLE}/{_COMPLETE}") == key.encode():
            return name
        with private_stream("tk-compiler") as stream:
            packages.write_bundle(python, stream, extra=extra, index=index)
            stream.seek(0)
            with engine.guard(f"fill the volume {name}"):
                engine.api.put_archive(container, BUNDLE, iter(lambda: stream.read(_CHUNK_BYTES), b""))
        with engine.guard(f"fill the volume {name}"):
            engine.api.put_archive(container, BUNDLE, _one_file(_COMPLETE, key.encode()))
    _forget_older(engine, name)
    return name


def _forget_older(engine: Engine, newest: str) -> None:
    """Remove all but the last few compilers that no container uses: each change of `tk` leaves one behind."""
    import docker.errors

    with engine.guard("look for older volumes"):
        answer = engine.api.volumes(filters={"label": f"{labels.VOLUME}=compiler"})
        others = [one for one in answer["Volumes"] or () if one["Name"] != newest]
        others.sort(key=lambda one: str(one.get("CreatedAt", "")), reverse=True)
        for one in others[_KEPT - 1 :]:
            with contextlib.suppress(docker.errors.APIError):  # in use, or another `tk` was quicker
                engine.api.remove_volume(one["Name"])


def cache_volume(engine: Engine, uid: int) -> str:
    """Name of this user's cache on this engine, made when it is not there yet."""
    name = cache_name(uid)
    with engine.guard(f"make the volume {name}"):
        engine.api.create_volume(name, labels={labels.VOLUME: "cache"})
    return name


def owned_directories(names: Iterable[str], uid: int, gid: int) -> bytes:
    """A tar that makes directories (or takes over those that are there) for one user alone."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name in names:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.uid, entry.gid = tarfile.DIRTYPE, 0o700, uid, gid
            archive.addfile(entry)
    return buffer.getvalue()[: archive.offset]  # as `builders.archive`


def _one_file(name: str, data: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(data), 0o644
        archive.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()[: archive.offset]  # as `builders.archive`
