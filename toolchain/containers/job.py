"""One job in a container: archives in, the bundled `tk`, archives out, hashed before they are put in place.

One way for every engine, local or remote: nothing is shared with the host's file system. The container lives
as long as the process that started it: its first process ends everything when its standard input closes.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tarfile
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from compiler import CrashError, HostError, InternalError, sha256_file, stream_atomic
from toolchain.containers import volumes
from toolchain.containers.probe import Image
from toolchain.engine.client import Engine
from toolchain.engine.sockets import STDOUT, closing_stream, frames, never_time_out, raw_socket

JOB = "/job"
IN, OUT = f"{JOB}/in", f"{JOB}/out"
_DIRECTORIES = {JOB: ("in", "out", "home", "temporary"), volumes.CACHE: ("user",)}
"""What the job's user owns: folders below each volume."""
_SCRIPT = Path(__file__).with_name("supervise.sh")
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: `argv` of the bundled `tk`, host files to bring in and results to take out.

    `inputs` maps a path below `IN` to a host file; `output` is a host directory that gets everything the job
    writes below `OUT`. `host` are host options of the SDK (devices and groups), `environment` variables on
    top of the image's. `owner` is the uid and gid that it runs as, by default the caller's.
    """

    argv: tuple[str, ...]
    inputs: Mapping[str, Path] = field(default_factory=dict)
    output: Path | None = None
    host: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    owner: tuple[int, int] = field(default_factory=lambda: (os.getuid(), os.getgid()))


@dataclass(frozen=True, slots=True)
class Done:
    """A job that ended by itself: its exit status and what it wrote to standard output."""

    status: int
    stdout: bytes


def run_job(
    engine: Engine, image: Image, job: Job, talk: Callable[[bytes], None], *, index: str | None = None
) -> Done:
    """Run `job` in a container of `image`; `talk` gets its standard error as it comes.

    No network, no capabilities, the caller's uid and gid, a read-only image. Raises HostError for the
    engine's troubles and CrashError when the container ended before the job did.
    """
    bundle = volumes.compiler_volume(engine, image.reference, image.python_version, index=index)
    cache = volumes.cache_volume(engine, job.owner[0])
    token = secrets.token_hex(16)
    with _container(engine, image, job, bundle, cache, token) as (name, streams):
        with engine.guard("make folders in the container"):
            for volume, folders in _DIRECTORIES.items():
                engine.api.put_archive(name, volume, volumes.owned_directories(folders, *job.owner))
        for path, source in job.inputs.items():
            _put(engine, name, path, source, job.owner)
        with engine.guard("follow the container"):
            raw_socket(streams).sendall(b"go\n")
            done, digests = _follow(frames(streams), token.encode(), talk)
        if job.output is not None:
            _fetch(engine, name, job.output, digests)
    return done


@contextlib.contextmanager
def _container(
    engine: Engine, image: Image, job: Job, bundle: str, cache: str, token: str
) -> Iterator[tuple[str, Any]]:
    """A started container that waits for `go`, and its streams, which keep it alive while they are open."""
    mounts = [
        {"Type": "volume", "Source": bundle, "Target": volumes.BUNDLE, "ReadOnly": True},
        {"Type": "volume", "Source": cache, "Target": volumes.CACHE},
        {"Type": "volume", "Target": JOB},  # anonymous: it goes with the container
    ]
    host = {
        "mounts": mounts,
        "network_mode": "none",
        "init": True,
        "auto_remove": True,
        "read_only": True,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        **job.host,
    }
    tk = [image.python, "-m", "toolchain", *job.argv]
    supervisor = ["/bin/sh", "-c", _SCRIPT.read_text(), "supervise", token, OUT, *tk]
    with engine.container(
        image.reference,
        supervisor[1:],
        entrypoint=supervisor[:1],
        user="{}:{}".format(*job.owner),
        environment={**_environment(), **job.environment},
        working_dir=OUT,
        stdin_open=True,
        host=host,
    ) as name:
        with engine.guard("attach to the container"):
            wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            streams = engine.api.attach_socket(name, params=wanted)
        never_time_out(streams)
        with closing_stream(streams):
            with engine.guard(f"start a container of {image.reference}"):
                engine.api.start(name)
            yield name, streams


def _environment() -> dict[str, str]:
    return {
        "HOME": f"{JOB}/home",
        "TMPDIR": f"{JOB}/temporary",
        "TK_CACHE_DIR": f"{volumes.CACHE}/user/tk",
        "PYTHONPATH": f"{volumes.BUNDLE}/source:{volumes.BUNDLE}/packages",
        "PYTHONPYCACHEPREFIX": f"{volumes.CACHE}/user/pycache",
        "PYTHONNOUSERSITE": "1",
        "NO_COLOR": "1",
    }


def _put(engine: Engine, name: str, path: str, source: Path, owner: tuple[int, int]) -> None:
    """Send one file, however large, without holding it in memory."""
    with tempfile.TemporaryFile() as stream:
        with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for parent in reversed(PurePosixPath(path).parents[:-1]):
                entry = tarfile.TarInfo(str(parent))
                entry.type, entry.mode = tarfile.DIRTYPE, 0o700
                entry.uid, entry.gid = owner
                archive.addfile(entry)
            with source.open("rb") as content:
                entry = archive.gettarinfo(arcname=path, fileobj=content)
                entry.uid, entry.gid = owner
                entry.uname = entry.gname = ""
                entry.mode, entry.mtime = 0o600, 0
                archive.addfile(entry, content)
        stream.seek(0)
        with engine.guard("bring files into the container"):
            engine.api.put_archive(name, IN, iter(lambda: stream.read(_CHUNK_BYTES), b""))


def _follow(
    written: Iterable[tuple[int, bytes]], token: bytes, talk: Callable[[bytes], None]
) -> tuple[Done, dict[str, str]]:
    """Read both outputs until the supervisor says that the job has ended."""
    stdout, pending = bytearray(), b""
    digests: dict[str, str] = {}
    for stream, data in written:
        if stream == STDOUT:
            stdout += data
            continue
        *lines, pending = (pending + data).split(b"\n")
        for line in lines:
            if not line.startswith(token):
                talk(line + b"\n")
                continue
            kind, _, rest = line[len(token) + 1 :].decode().partition(" ")
            if kind == "exit":
                return Done(int(rest), bytes(stdout)), digests
            digest, _, path = rest.partition("  ")
            digests[path.removeprefix("./")] = digest
    raise CrashError(
        "the container ended before its work was done",
        why=pending.decode(errors="backslashreplace").strip() or "it was killed, or ran out of memory",
        hint="see the engine's log, and try with more memory",
    )


def _fetch(engine: Engine, name: str, target: Path, digests: Mapping[str, str]) -> None:
    """Write the job's results below `target`, each checked against the digest that the container gave."""
    with tempfile.TemporaryFile() as stream:
        with engine.guard("fetch the results from the container"):
            parts, _ = engine.api.get_archive(name, OUT, chunk_size=_CHUNK_BYTES)
            for part in parts:
                stream.write(part)
        stream.seek(0)
        with tarfile.open(fileobj=stream) as archive:
            for entry in archive:
                if entry.isfile():
                    _place(archive, entry, target, digests)


def _place(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, target: Path, digests: Mapping[str, str]
) -> None:
    name = "/".join(PurePosixPath(entry.name).parts[1:])
    content = archive.extractfile(entry)
    if content is None or ".." in name.split("/"):
        raise InternalError("the container gave a result that is no plain file", where=entry.name)
    path = target / name
    with stream_atomic(path, executable=bool(entry.mode & 0o100)) as stream:
        shutil.copyfileobj(content, stream, _CHUNK_BYTES)
    if sha256_file(path) != digests.get(name):
        raise HostError(
            "a result changed on its way out of the container", where=name, hint="run the command again"
        )
