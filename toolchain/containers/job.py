"""One job in a container: archives in, the bundled `tk`, archives out, hashed before they are put in place.

One way for every engine, local or remote: nothing is shared with the host's file system. The container lives
as long as the process that started it: its first process ends everything when its standard input closes.
Accelerators that the engine was asked for are looked at inside before the work begins.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, NoReturn

from compiler import (
    CrashError,
    DiskLimitError,
    HostError,
    InternalError,
    private_stream,
    sha256_file,
    stream_atomic,
)
from toolchain.containers import volumes
from toolchain.containers.probe import Image
from toolchain.containers.request import NO_LIMITS, ContainerLimits
from toolchain.devices.options import RunOption, create_arguments
from toolchain.engine.client import Engine
from toolchain.engine.sockets import STDOUT, closing_stream, frames, never_time_out, raw_socket
from toolchain.engine.watch import followed

JOB = "/job"
IN, OUT = f"{JOB}/in", f"{JOB}/out"
_DIRECTORIES = {JOB: ("in", "out", "home", "temporary"), volumes.CACHE: ("user",)}
"""What the job's user owns: folders below each volume."""
_SCRIPT = Path(__file__).with_name("supervise.sh")
_CHECK = Path(__file__).with_name("check_inside.py")
_CHECK_FIRST = (
    'python=$1 check=$2 token=$3 names=$4; shift 4; "$python" -c "$check" "$token" $names && exec "$@"'
)
"""A shell's words for: check the devices `names`, then become the job's command."""
_CHUNK_BYTES = 1 << 20

_ENVIRONMENT = (
    ("HOME", f"{JOB}/home", "a home of this run"),
    ("TMPDIR", f"{JOB}/temporary", "temporary files of this run"),
    ("TK_CACHE_DIR", f"{volumes.CACHE}/user/tk", "kernels that were compiled once stay compiled"),
    ("PYTHONPATH", f"{volumes.BUNDLE}/source:{volumes.BUNDLE}/packages", "the compiler and its packages"),
    ("PYTHONPYCACHEPREFIX", f"{volumes.CACHE}/user/pycache", "Python modules are compiled once"),
    ("PYTHONNOUSERSITE", "1", "no packages but those"),
    ("NO_COLOR", "1", "output goes through tk"),
)
"""Variables of every job: name, value, why."""


@dataclass(frozen=True, slots=True)
class Job:
    """What to run: `argv` of the bundled `tk`, host files to bring in and results to take out.

    `inputs` maps a path below `IN` to a host file; `output` is a host directory that gets everything the job
    writes below `OUT`. `devices` are the options that give it accelerators; `present` are the nodes and
    driver libraries that must be usable inside then. `environment` are variables on top of the image's.
    `owner` is the uid and gid that it runs as, by default the caller's. `limits` hold for all in it. `extra`
    is one of the project whose packages it needs, too.
    """

    argv: tuple[str, ...]
    inputs: Mapping[str, Path] = field(default_factory=dict)
    output: Path | None = None
    devices: tuple[RunOption, ...] = ()
    present: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    owner: tuple[int, int] = field(default_factory=lambda: (os.getuid(), os.getgid()))
    limits: ContainerLimits = NO_LIMITS
    extra: str = ""


@dataclass(frozen=True, slots=True)
class Done:
    """A job that ended by itself: its exit status and what it wrote to standard output.

    killed: its processes that the kernel ended for want of memory; 0 where it does not tell.
    """

    status: int
    stdout: bytes
    killed: int = 0


def run_job(
    engine: Engine, image: Image, job: Job, talk: Callable[[bytes], None], *, index: str | None = None
) -> Done:
    """Run `job` in a container of `image`; `talk` gets its standard error as it comes.

    No network, no capabilities, the caller's uid and gid, a read-only image. Raises HostError for the
    engine's troubles, also when it did not give the devices it was asked for, CrashError when the container
    ended before the job did, and DiskLimitError when the job wrote more than it may.
    """
    bundle = volumes.compiler_volume(
        engine, image.reference, image.python_version, extra=job.extra, index=index
    )
    cache = volumes.cache_volume(engine, job.owner[0])
    token = secrets.token_hex(16)
    with _container(engine, image, job, bundle, cache, token) as (name, streams):
        with engine.guard("make folders in the container"):
            for volume, folders in _DIRECTORIES.items():
                engine.api.put_archive(name, volume, volumes.owned_directories(folders, *job.owner))
        for path, source in job.inputs.items():
            _put(engine, name, path, source, job.owner)
        watch = engine.watch("follow the container", name)
        try:
            with engine.guard("follow the container"):
                raw_socket(streams).sendall(b"go\n")
                done, digests, missing = _follow(
                    followed(lambda: frames(streams), watch), token.encode(), talk, job.limits
                )
        except DiskLimitError:
            raise
        except CrashError:
            engine.check_alive("follow the container")
            raise
        if missing:
            _refuse(engine, image, job, missing)
        if job.output is not None:
            _fetch(engine, name, job.output, digests)
    return done


@contextlib.contextmanager
def _container(
    engine: Engine, image: Image, job: Job, bundle: str, cache: str, token: str
) -> Iterator[tuple[str, Any]]:
    """A started container that waits for `go`, and its streams, which keep it alive while they are open."""
    arguments = create_arguments(job_options(job, bundle, cache))
    arguments["environment"].update(job.environment)
    tk = [image.python, "-m", "toolchain", *job.argv]
    if job.present:
        names = " ".join(job.present)
        tk = ["/bin/sh", "-c", _CHECK_FIRST, "check", image.python, _CHECK.read_text(), token, names, *tk]
    supervisor = [
        "/bin/sh",
        "-c",
        _SCRIPT.read_text(),
        "supervise",
        token,
        OUT,
        _kilobytes(job.limits.disk),
        *tk,
    ]
    with engine.container(image.reference, supervisor[1:], entrypoint=supervisor[:1], **arguments) as name:
        with engine.guard("attach to the container"):
            wanted = {"stdin": 1, "stdout": 1, "stderr": 1, "stream": 1}
            streams = engine.api.attach_socket(name, params=wanted)
        never_time_out(streams)
        with closing_stream(streams):
            with engine.guard(f"start a container of {image.reference}"):
                engine.api.start(name)
            yield name, streams


def job_options(job: Job, bundle: str, cache: str) -> tuple[RunOption, ...]:
    """Every option of a job's container with its reason; `bundle` and `cache` are names of volumes."""
    return (
        RunOption("rm", "", "the container is removed at its end"),
        RunOption("init", "", "PID 1 collects ended processes and hands on signals"),
        RunOption("user", "{}:{}".format(*job.owner), "what it writes belongs to whoever asked for it"),
        RunOption("cap-drop", "ALL", "neither compilers nor accelerators need a capability of root"),
        RunOption("security-opt", "no-new-privileges", "no program in the image makes its user root"),
        RunOption("read-only", "", "the image is not changed"),
        RunOption("network", "none", "the same result whatever can be reached"),
        *_limit_options(job.limits),
        RunOption("volume", f"{bundle}:{volumes.BUNDLE}:ro", "the compiler that tk brings along"),
        RunOption("volume", f"{cache}:{volumes.CACHE}", "this user's cache on this engine"),
        RunOption("volume", JOB, "files of this run, in and out; it goes with the container"),
        *(RunOption("env", f"{name}={value}", why) for name, value, why in _ENVIRONMENT),
        RunOption("workdir", OUT, "where results are written"),
        RunOption("interactive", "", "the container ends when its standard input closes, so with tk"),
        *job.devices,
    )


def _limit_options(limits: ContainerLimits) -> Iterator[RunOption]:
    if limits.memory is not None:
        yield RunOption("memory", str(limits.memory), "asked for: beyond it the kernel ends what runs inside")
        yield RunOption("memory-swap", str(limits.memory), "memory and swap together: no swap beside it")


def _kilobytes(limit: int | None) -> str:
    """As `du -k` counts; 0 stands for no limit."""
    return str(0 if limit is None else max(1, limit // 1024))


def _put(engine: Engine, name: str, path: str, source: Path, owner: tuple[int, int]) -> None:
    """Send one file, however large, without holding it in memory."""
    with private_stream("tk-job") as stream:
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
        stream.truncate(archive.offset)  # as `builders.archive`
        stream.seek(0)
        with engine.guard("bring files into the container"):
            engine.api.put_archive(name, IN, iter(lambda: stream.read(_CHUNK_BYTES), b""))


def _follow(
    written: Iterable[tuple[int, bytes]],
    token: bytes,
    talk: Callable[[bytes], None],
    limits: ContainerLimits,
) -> tuple[Done, dict[str, str], list[str]]:
    """Read both outputs until the supervisor says that the job has ended.

    Returns its end, the digests of its results, and lines `NAME WHY` for devices that cannot be used.
    """
    stdout, pending, killed = bytearray(), b"", 0
    digests: dict[str, str] = {}
    missing: list[str] = []
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
                return Done(int(rest), bytes(stdout), killed), digests, missing
            if kind == "killed":
                killed = int(rest)
                continue
            if kind == "disk":
                raise _wrote_too_much(int(rest), limits)
            if kind == "missing":
                missing.append(rest)
                continue
            digest, _, path = rest.partition("  ")
            digests[path.removeprefix("./")] = digest
    raise CrashError(
        "the container ended before its work was done",
        why=pending.decode(errors="backslashreplace").strip() or "it was killed, or ran out of memory",
        hint="see the engine's log, and try with more memory",
    )


def _wrote_too_much(kilobytes: int, limits: ContainerLimits) -> DiskLimitError:
    return DiskLimitError(
        f"the work in the container {DiskLimitError.SAID}",
        why=f"{kilobytes * 1024:,} bytes; the limit is {limits.disk or 0:,}",
        hint="raise the limit of disk space",
    )


def _refuse(engine: Engine, image: Image, job: Job, missing: list[str]) -> NoReturn:
    """The engine started the container without what it was asked for."""
    passed_over = [one for one in job.devices if one.flag in ("cdi", "gpus")]
    hint = "`tk doctor` looks at devices, groups and the engine; see the engine's log, too"
    if passed_over and engine.kind == "podman":
        hint = "podman's interface passes over such requests (podman issue 22645): use `--engine docker`"
    elif passed_over:
        hint = (
            "see whether the host's own `nvidia-smi` works, and renew what the container runtime knows:"
            " `sudo nvidia-ctk runtime configure --runtime=docker`, or `sudo nvidia-ctk cdi generate`"
        )
    raise HostError(
        f"a container of {image.reference} did not get the accelerators it was started with",
        where=f"the engine at {engine.endpoint}",
        why="\n".join(one.replace(" ", ": ", 1) for one in missing),
        hint=hint,
    )


def _fetch(engine: Engine, name: str, target: Path, digests: Mapping[str, str]) -> None:
    """Write the job's results below `target`, each checked against the digest that the container gave."""
    with private_stream("tk-job") as stream:
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
