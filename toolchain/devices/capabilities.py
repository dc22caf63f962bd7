"""Added capabilities for a program that does not run as root.

Docker puts capabilities that were added into root's sets alone; another user gets none of them. So the
container starts as root with the few that are needed to become somebody else, and `setpriv` of util-linux (in
every image on Debian and Ubuntu) becomes the user for good, with only the wanted ones in all five sets:
ambient ones stay when a program is started (capabilities(7)). Podman does so by itself.
"""

from __future__ import annotations

from collections.abc import Iterable

from toolchain.devices.host_facts import Caller, EngineFacts
from toolchain.devices.options import RunOption

_TO_BECOME = ("SETUID", "SETGID", "SETPCAP")
_SOURCE = "capabilities(7), setpriv(1)"


def keep_capabilities(
    options: Iterable[RunOption], engine: EngineFacts, caller: Caller
) -> tuple[tuple[RunOption, ...], tuple[str, ...]]:
    """Options with which a user other than root gets what they add, and words before the program's own."""
    given = tuple(options)
    wanted = [one.value for one in given if one.flag == "cap-add"]
    if not wanted or not caller.uid or engine.kind != "docker" or engine.is_rootless:
        return given, ()
    groups = ",".join(one.value for one in given if one.flag == "group-add")
    who = f"{caller.uid}:{caller.gid}"
    root = RunOption(
        "user", "0:0", f"Docker gives capabilities to root only: `setpriv` becomes {who} first", _SOURCE
    )
    needed = [
        RunOption("cap-add", one, f"to become {who}; gone before the program starts", _SOURCE)
        for one in _TO_BECOME
    ]
    caps = ",".join(["-all", *(f"+{one.lower()}" for one in wanted)])
    words = (
        "setpriv", "--reuid", str(caller.uid), "--regid", str(caller.gid),
        *(("--groups", groups) if groups else ("--clear-groups",)),
        f"--inh-caps={caps}", f"--ambient-caps={caps}", f"--bounding-set={caps}", "--",
    )  # fmt: skip
    return (*(root if one.flag == "user" else one for one in given), *needed), words
