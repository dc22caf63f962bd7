"""Options of a container run, each with the reason for it; as the SDK and as command lines take them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from toolchain.settings import environment_variable

Flag = Literal[
    "init", "user", "userns", "cap-drop", "cap-add", "security-opt", "read-only", "network", "ipc",
    "shm-size", "memory", "memory-swap", "tmpfs", "env", "mount", "volume", "workdir", "interactive", "tty",
    "rm", "device", "cdi", "gpus", "runtime", "group-add", "publish",
]  # fmt: skip
_BARE: frozenset[Flag] = frozenset({"init", "interactive", "tty", "rm", "read-only"})
"""Flags without a value."""


@dataclass(frozen=True, slots=True)
class RunOption:
    """One option of `docker run` or `podman run`: name without dashes, value, why, and where that is written.

    `cdi` is what command lines write as `--device kind=name`; `mount` has the value SOURCE:TARGET or
    SOURCE:TARGET:ro and is always a bind mount of something that exists; `volume` has NAME:TARGET,
    NAME:TARGET:ro or, for one that goes with the container, TARGET; `gpus` is `all` or numbers. `env` is
    NAME=VALUE, or NAME for a variable that is handed on; `publish` is ADDRESS:HOST:PORT or that with /udp.
    """

    flag: Flag
    value: str
    reason: str
    source: str = ""


def command_line(
    engine: str, options: Iterable[RunOption], image: str, argv: Sequence[str], *, host: str = ""
) -> str:
    """The shell command that does the same; `host` is the engine's address where it is not the default."""
    words = [engine, *(["--host" if engine == "docker" else "--url", host] if host else []), "run"]
    for one in options:
        words += _words(one, engine)
    return shlex.join([*words, image, *argv])


def describe_options(options: Iterable[RunOption]) -> Iterable[str]:
    """Lines for people: each option, then its reason and where that is written."""
    for one in options:
        yield f"  --{one.flag} {one.value}".rstrip()
        yield f"      {one.reason}" + (f" [{one.source}]" if one.source else "")


def _words(option: RunOption, engine: str) -> list[str]:
    if option.flag in _BARE:
        return [f"--{option.flag}"]
    if option.flag == "cdi":
        return ["--device", option.value]
    if option.flag == "mount":
        source, target, *mode = option.value.split(":")
        only = ",readonly" if mode else ""
        return ["--mount", f"type=bind,source={source},target={target}{only}"]
    if option.flag == "gpus" and option.value != "all":
        return ["--gpus", f'"device={option.value}"']
    if option.flag == "userns" and engine == "docker":
        return []
    return [f"--{option.flag}", option.value]


def create_arguments(options: Iterable[RunOption]) -> dict[str, Any]:
    """Arguments for `Engine.container`: those of the SDK's `create_container`, host options in `host`.

    Devices are in dictionary form, as the SDK splits texts at colons; CDI names are device requests, as it
    takes them for paths otherwise (docker-py, observed on 7.2.0).
    """
    result: dict[str, Any] = {"environment": {}}
    host: dict[str, Any] = {}
    for one in options:
        _HOW[one.flag](result, host, one.value)
    return {**result, "host": host}


Arguments = dict[str, Any]


def _init(_result: Arguments, host: Arguments, _value: str) -> None:
    host["init"] = True


def _user(result: Arguments, _host: Arguments, value: str) -> None:
    result["user"] = value


def _workdir(result: Arguments, _host: Arguments, value: str) -> None:
    result["working_dir"] = value


def _env(result: Arguments, _host: Arguments, value: str) -> None:
    name, equals, text = value.partition("=")
    result["environment"][name] = text if equals else environment_variable(name) or ""


def _publish(result: Arguments, host: Arguments, value: str) -> None:
    ends, _, kind = value.partition("/")
    address, outside, inside = ends.rsplit(":", 2)
    kind = kind or "tcp"
    result.setdefault("ports", []).append((int(inside), kind))
    bound = host.setdefault("port_bindings", {}).setdefault(f"{inside}/{kind}", [])
    bound.append((address.strip("[]"), int(outside)))


def _interactive(result: Arguments, _host: Arguments, _value: str) -> None:
    result["stdin_open"] = True


def _tty(result: Arguments, _host: Arguments, _value: str) -> None:
    result["tty"] = True


def _remove(_result: Arguments, host: Arguments, _value: str) -> None:
    host["auto_remove"] = True


def _listed(name: str) -> Any:
    def add(_result: Arguments, host: Arguments, value: str) -> None:
        host.setdefault(name, []).append(value)

    return add


def _single(name: str) -> Any:
    def put(_result: Arguments, host: Arguments, value: str) -> None:
        host[name] = value

    return put


def _bytes(name: str) -> Any:
    def put(_result: Arguments, host: Arguments, value: str) -> None:
        host[name] = int(value)

    return put


def _tmpfs(_result: Arguments, host: Arguments, value: str) -> None:
    path, _, flags = value.partition(":")
    host.setdefault("tmpfs", {})[path] = flags


def _mount(_result: Arguments, host: Arguments, value: str) -> None:
    from docker.types import Mount

    source, target, *mode = value.split(":")
    host.setdefault("mounts", []).append(Mount(target, source, type="bind", read_only=bool(mode)))


def _volume(_result: Arguments, host: Arguments, value: str) -> None:
    from docker.types import Mount

    *named, target = value.removesuffix(":ro").split(":")
    one = Mount(target, named[0] if named else None, type="volume", read_only=value.endswith(":ro"))
    host.setdefault("mounts", []).append(one)


def _read_only(_result: Arguments, host: Arguments, _value: str) -> None:
    host["read_only"] = True


def _device(_result: Arguments, host: Arguments, value: str) -> None:
    entry = {"PathOnHost": value, "PathInContainer": value, "CgroupPermissions": "rwm"}
    host.setdefault("devices", []).append(entry)


def _cdi(_result: Arguments, host: Arguments, value: str) -> None:
    from docker.types import DeviceRequest

    host.setdefault("device_requests", []).append(DeviceRequest(driver="cdi", device_ids=[value]))


def _gpus(_result: Arguments, host: Arguments, value: str) -> None:
    from docker.types import DeviceRequest

    chosen = {"count": -1} if value == "all" else {"device_ids": value.split(",")}
    host.setdefault("device_requests", []).append(DeviceRequest(capabilities=[["gpu"]], **chosen))


_HOW: dict[Flag, Any] = {
    "init": _init,
    "user": _user,
    "userns": _single("userns_mode"),
    "cap-drop": _listed("cap_drop"),
    "cap-add": _listed("cap_add"),
    "security-opt": _listed("security_opt"),
    "read-only": _read_only,
    "network": _single("network_mode"),
    "ipc": _single("ipc_mode"),
    "shm-size": _single("shm_size"),
    "memory": _bytes("mem_limit"),
    "memory-swap": _bytes("memswap_limit"),
    "tmpfs": _tmpfs,
    "env": _env,
    "mount": _mount,
    "volume": _volume,
    "workdir": _workdir,
    "interactive": _interactive,
    "tty": _tty,
    "rm": _remove,
    "device": _device,
    "cdi": _cdi,
    "gpus": _gpus,
    "runtime": _single("runtime"),
    "group-add": _listed("group_add"),
    "publish": _publish,
}
