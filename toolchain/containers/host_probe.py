"""What an engine's host is and shows of its devices; a remote one is looked at from a small container."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path

from compiler import HostError
from toolchain.devices.host_facts import EngineFacts, read_facts
from toolchain.devices.sysroot import FILES, FOLDERS, LINKS, MOST_BYTES, NODES, Sysroot, capture, from_lines
from toolchain.engine.client import Engine
from toolchain.options import existing_file

_HOST = "/host"
_SECONDS = 60.0
_FUNCTIONS = f"""
say() {{ printf '{{"kind":"%s","path":"%s","text":"%s"}}\\n' "$1" "$(b64 "${{2#{_HOST}}}")" "$(b64 "$3")"; }}
b64() {{ printf %s "$1" | base64 | tr -d '\\n'; }}
"""


def engine_facts(engine: Engine) -> EngineFacts:
    """Ask an engine for what decides about devices; raises HostError when it does not answer."""
    return read_facts(engine.kind, engine.version, engine.info, is_local=engine.is_local)


def probe_script(root: str = _HOST) -> str:
    """A POSIX shell script that prints what `capture` reads, below `root`, as lines for `from_lines`."""
    files = " ".join(root + one for one in FILES)
    links = " ".join(root + one for one in LINKS)
    nodes = " ".join(root + one for one in NODES)
    folders = " ".join(root + one for one in FOLDERS)
    return "\n".join((
        _FUNCTIONS.replace(_HOST, root) if root != _HOST else _FUNCTIONS,
        f'for f in {files}; do [ -r "$f" ] && say file "$f" "$(head -c {MOST_BYTES} "$f")"; done',
        f'for f in {links}; do [ -L "$f" ] && say link "$f" "$(readlink -f "$f")"; done',
        f'for f in {nodes}; do [ -c "$f" ] && say node "$f" "$(stat -c \'%u %g %a\' "$f")"; done',
        f'for f in {folders}; do [ -d "$f" ] && say folder "$f" ""; done',
        "exit 0",
    ))  # fmt: skip


def capture_remote(engine: Engine, image: str) -> Sysroot:
    """What the machine of `engine` shows, read in a container of `image`; raises HostError.

    The container sees that machine's files read only, as nobody, without network or any capability, and is
    removed. `image` needs a shell and coreutils, as every image of a toolchain has them.
    """
    from docker.types import Mount

    origin = f"the machine of {engine.endpoint.url}"
    done = engine.run(
        image,
        ["/bin/sh", "-c", probe_script()],
        timeout=_SECONDS,
        user="65534:65534",
        host={
            "mounts": [Mount(_HOST, "/", type="bind", read_only=True)],
            "cap_drop": ["ALL"],
            "security_opt": ["no-new-privileges"],
        },
    )
    if done.code != 0:
        raise HostError(
            f"cannot look at the devices of {origin}",
            why=" ".join(done.output.split())[-300:] or f"the probe ended with status {done.code}",
            hint="name a file that `tk doctor --capture FILE` wrote there with --assume",
        )
    return from_lines(done.output, origin)


def to_lines(sysroot: Sysroot) -> str:
    """The same text that a probe prints, for a file that `from_lines` reads."""
    return "".join(_lines(sysroot))


def _lines(sysroot: Sysroot) -> Iterable[str]:
    for path, text in sysroot.files.items():
        yield _line("file", path, text)
    for path, target in sysroot.links.items():
        yield _line("link", path, target)
    for path, node in sysroot.nodes.items():
        yield _line("node", path, f"{node.uid} {node.gid} {node.mode:o}")
    for path in sorted(sysroot.folders):
        yield _line("folder", path, "")


def _line(kind: str, path: str, text: str) -> str:
    return json.dumps({"kind": kind, "path": _encoded(path), "text": _encoded(text)}) + "\n"


def _encoded(text: str) -> str:
    return b64encode(text.encode(errors="surrogateescape")).decode()


def read_captured(path: Path) -> Sysroot:
    """A machine that was captured into a file; raises BadInputError for another file."""
    return from_lines(existing_file(path).read_text(errors="replace"), f"the machine captured in {path}")


def look(engine: Engine, image: str | None, assumed: Path | None) -> Sysroot:
    """The machine that `engine` runs on: from a file, from here when it is local, else by a probe.

    Raises HostError for a remote engine without an image to probe with.
    """
    if assumed is not None:
        return read_captured(assumed)
    if engine.is_local:
        return capture()
    if image is None:
        raise HostError(
            f"cannot look at the devices of the machine of {engine.endpoint.url}",
            why="the look is taken in a container of the image, and that is not there yet",
            hint="build the image first, or name a captured machine with --assume",
        )
    return capture_remote(engine, image)
