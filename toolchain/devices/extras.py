"""What a run gets on request and never by itself: more folders, variables, ports, another place to start.

Each becomes an option of the container with the reason "asked for". A port is open to this machine alone
unless an address is named; the value of a variable that is handed on stays out of what is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from compiler import BadInputError, UsageError
from toolchain.devices.options import RunOption
from toolchain.devices.wishes import Extras
from toolchain.settings import environment_variable

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VOLUME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]+")
_PORT = re.compile(
    r"(?:(?P<address>\d{1,3}(?:\.\d{1,3}){3}|\[[0-9A-Fa-f:]+\]):)?"
    r"(?:(?P<host>\d{1,5}):)?(?P<inside>\d{1,5})(?P<kind>/tcp|/udp)?"
)
_HERE = "127.0.0.1"
_MOST_PORT = 65535


def extra_options(asked: Extras, *, is_local: bool, taken: Iterable[str] = ()) -> tuple[RunOption, ...]:
    """The options; `taken` are folders in the container that have something already.

    is_local: whether the engine sees this machine's folders. Raises UsageError for a text of another form and
    for two things at one place, BadInputError for a folder that is not there.
    """
    options = [
        *(_volume(one, is_local=is_local) for one in asked.volumes),
        *map(_variable, asked.env),
        *map(_published, asked.publish),
    ]
    if asked.workdir:
        _inside(asked.workdir, "--workdir")
    targets = list(taken)
    for one in options:
        if one.flag in ("mount", "volume"):
            target = str(PurePosixPath(one.value.split(":")[1]))  # `/data/` is `/data`
            if target in targets:
                raise UsageError(
                    f"{target} is taken already",
                    where=f"--volume {one.value}",
                    hint="name another folder; the current one is at /work without --no-folder",
                )
            targets.append(target)
    return tuple(options)


def _volume(text: str, *, is_local: bool) -> RunOption:
    """A folder or file here where SRC has a slash or begins with a dot, else a volume of the engine."""
    where = f"--volume {text}"
    source, colon, rest = text.partition(":")
    target, _, mode = rest.partition(":")
    if not source or not colon or mode not in ("", "ro", "rw"):
        raise UsageError(
            f"`{text}` is no volume", where=where, hint="SRC:DST or SRC:DST:ro, as `-v /data/sets:/data:ro`"
        )
    _inside(target, where)
    only = ":ro" if mode == "ro" else ""
    how = ", read only" if only else ""
    if "/" not in source and not source.startswith("."):
        if not _VOLUME.fullmatch(source):
            raise UsageError(f"no volume can be called `{source}`", where=where, hint="./NAME is a folder")
        return RunOption(
            "volume", f"{source}:{target}{only}", f"asked for: the engine's volume {source}{how}"
        )
    if not is_local:
        raise UsageError(
            f"the engine does not see {source}", where=where, why="it runs on another machine",
            hint="put the files into a volume of the engine, and name that: `-v NAME:DST`",
        )  # fmt: skip
    try:
        path = Path(source).expanduser().absolute()
        path.stat()
    except (OSError, RuntimeError) as error:  # the latter for the home of a user that there is not
        raise BadInputError(
            f"there is no {source}", where=where, why=getattr(error, "strerror", "") or str(error),
            hint="check the path; it is not made",
        ) from error  # fmt: skip
    return RunOption("mount", f"{path}:{target}{only}", f"asked for: {path} of this machine{how}")


def _inside(path: str, where: str) -> None:
    if not path.startswith("/") or path.strip("/") == "" or ".." in PurePosixPath(path).parts or ":" in path:
        raise UsageError(
            f"`{path}` is no folder in the container", where=where, hint="an absolute path without `..`"
        )


def _variable(text: str) -> RunOption:
    name, equals, _ = text.partition("=")
    if not _VARIABLE.fullmatch(name):
        raise UsageError(
            f"`{text}` sets no variable", where="--env", hint="NAME=VALUE, or NAME to hand it on"
        )
    if equals:
        return RunOption("env", text, "asked for")
    if environment_variable(name) is None:
        raise UsageError(f"{name} is not set here", where=f"--env {name}", hint=f"--env {name}=VALUE")
    return RunOption("env", name, "asked for: handed on with the value that it has here")


def _published(text: str) -> RunOption:
    found = _PORT.fullmatch(text)
    ports = [int(found[one]) for one in ("host", "inside") if found[one]] if found else []
    if found is None or not all(1 <= one <= _MOST_PORT for one in ports):
        raise UsageError(
            f"`{text}` is no port", where="--publish",
            hint="PORT, HOST:PORT or ADDRESS:HOST:PORT, with /udp; ports are 1 to 65535",
        )  # fmt: skip
    inside, kind = found["inside"], found["kind"] or ""
    address, host = found["address"] or _HERE, found["host"] or inside
    reach = "this machine alone" if address in (_HERE, "[::1]") else f"whoever reaches {address}"
    return RunOption("publish", f"{address}:{host}:{inside}{kind}", f"asked for: a port, open to {reach}")
