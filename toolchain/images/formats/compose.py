"""A plan as a Compose file: the image with the least that a container of it needs on one machine."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from toolchain.images.plan import Plan

if TYPE_CHECKING:
    from toolchain.devices.options import RunOption

FILE = "compose.yaml"
WORK = "/work"
"""Where the current folder is in the container."""

Service = dict[str, Any]


def compose(plan: Plan, options: Iterable[RunOption]) -> str:
    """The Compose file with one service; `options` are those of `tk image run` on some machine."""
    import yaml

    service: Service = {"image": plan.reference, "build": _build(plan)}
    for one in options:
        if one.flag in _HOW:
            _HOW[one.flag](service, one.value)
    service |= {"working_dir": WORK, "stdin_open": True, "tty": True}
    service.setdefault("volumes", []).append(f".:{WORK}")
    document = {"name": "tk", "services": {service_name(plan): _escaped(service)}}
    text = yaml.safe_dump(document, sort_keys=False, default_flow_style=False, width=1000)
    return f"# {plan.name}; devices, groups and user are those of the machine it was made on.\n{text}"


def service_name(plan: Plan) -> str:
    """What the service is called: the image's name in the letters that Compose takes."""
    return re.sub(r"[^a-z0-9_.-]", "-", plan.name.lower())


def _build(plan: Plan) -> dict[str, Any]:
    build: dict[str, Any] = {"context": ".", "labels": dict(plan.build_labels)}
    if plan.needs:
        build["additional_contexts"] = {
            one.reference: f"docker-image://{one.reference}" for one in plan.needs
        }
    return build


def _escaped(value: Any) -> Any:
    """Compose replaces `$NAME`; two of them stand for one."""
    if isinstance(value, str):
        return value.replace("$", "$$")
    if isinstance(value, dict):
        return {key: _escaped(one) for key, one in value.items()}
    return [_escaped(one) for one in value] if isinstance(value, list) else value


def _listed(key: str) -> Callable[[Service, str], None]:
    def add(service: Service, value: str) -> None:
        service.setdefault(key, []).append(value)

    return add


def _single(key: str) -> Callable[[Service, str], None]:
    def put(service: Service, value: str) -> None:
        service[key] = value

    return put


def _true(key: str) -> Callable[[Service, str], None]:
    def put(service: Service, _value: str) -> None:
        service[key] = True

    return put


def _env(service: Service, value: str) -> None:
    name, given, text = value.partition("=")
    service.setdefault("environment", {})[name] = text if given else None  # None: as it is here


def _gpus(service: Service, value: str) -> None:
    wanted: dict[str, Any] = {"driver": "nvidia", "capabilities": ["gpu"]}
    wanted |= {"count": "all"} if value == "all" else {"device_ids": value.split(",")}
    service["deploy"] = {"resources": {"reservations": {"devices": [wanted]}}}


# `rm`, `interactive`, `tty` and `workdir` are a matter of `docker compose run` or said above.
_HOW: dict[str, Callable[[Service, str], None]] = {
    "init": _true("init"),
    "user": _single("user"),
    "userns": _single("userns_mode"),
    "cap-drop": _listed("cap_drop"),
    "cap-add": _listed("cap_add"),
    "security-opt": _listed("security_opt"),
    "read-only": _true("read_only"),
    "network": _single("network_mode"),
    "ipc": _single("ipc"),
    "shm-size": _single("shm_size"),
    "tmpfs": _listed("tmpfs"),
    "env": _env,
    "mount": _listed("volumes"),
    "volume": _listed("volumes"),
    "device": _listed("devices"),
    "cdi": _listed("devices"),
    "gpus": _gpus,
    "runtime": _single("runtime"),
    "group-add": _listed("group_add"),
    "publish": _listed("ports"),
}
