"""Accelerators: what is there, whether containers and this user can use it, whether drivers fit images."""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase

from compiler import TkError
from toolchain.containers.host_probe import engine_facts
from toolchain.devices.detect import Device, Inventory
from toolchain.devices.host_facts import EngineFacts
from toolchain.devices.privileges import PRODUCTS, find_lacks, is_open
from toolchain.devices.sysroot import NODES
from toolchain.doctor.row import CheckContext, Row, problem


def devices(context: CheckContext) -> Iterable[Row]:
    """Every accelerator with its architecture and driver."""
    inventory = context.inventory
    if isinstance(inventory, TkError):
        yield problem("accelerators", inventory, "warning")
        return
    if not inventory.devices:
        yield Row("accelerators", "ok", f"{inventory.origin} has none: everything runs on the processor")
    for one in inventory.devices:
        yield _device(inventory, one)


def _device(inventory: Inventory, device: Device) -> Row:
    number = inventory.of(device.vendor).index(device)
    name = " ".join(part for part in (PRODUCTS[device.vendor], device.name) if part)
    about = f"{device.vendor} {number}"
    driver = f"driver {device.driver}" if device.driver else "no driver"
    if device.driver in inventory.versions:
        driver += f" {inventory.versions[device.driver]}"
    text = f"{name} at {device.address}, {device.arch or 'unknown arch'}, {driver}"
    if device.arch:
        return Row(about, "ok", text)
    cause = f"device id {device.device_id:04x} is not in recipes/devices.yaml, and its driver does not say"
    return Row(about, "warning", text, cause, "name the arch with --arch, and report the device")


def access(context: CheckContext) -> Iterable[Row]:
    """Whether a container can be given each vendor's accelerators."""
    if isinstance(context.inventory, TkError):
        return
    facts = _facts(context)
    for vendor in context.inventory.vendors:
        about = f"{vendor} in containers"
        lacks = find_lacks(context.inventory, vendor, facts, context.caller)
        if not lacks:
            yield Row(about, "ok", "nodes, groups and runtime are there")
        for one in lacks:
            yield Row(about, "problem", one.what, "containers cannot use it", one.fix)


def _facts(context: CheckContext) -> EngineFacts:
    """The engine's abilities; without an engine those of an ideal one, so that only the host counts."""
    if not isinstance(context.engine, TkError):
        try:
            return engine_facts(context.engine)
        except TkError:
            pass
    return EngineFacts("docker", runtimes=("nvidia",))


def groups(context: CheckContext) -> Iterable[Row]:
    """Whether this user may use the nodes without a container."""
    inventory = context.inventory
    if isinstance(inventory, TkError) or context.caller.uid == 0 or not inventory.devices:
        return
    closed: dict[int, list[str]] = {}
    own = {node for one in inventory.devices for node in one.nodes if "/renderD" in node} | {"/dev/kfd"}
    for path in sorted(own & set(inventory.nodes)):
        node = inventory.nodes[path]
        if node.gid and not is_open(node) and node.gid not in context.caller.groups:
            closed.setdefault(node.gid, []).append(path)
    for gid, paths in closed.items():
        yield Row(
            "groups",
            "warning",
            f"this user is not in the group {gid} of {' and '.join(paths)}",
            "needed without a container, and with rootless engines",
            f"`sudo usermod -aG $(getent group {gid} | cut -d: -f1) $USER`, then log in again",
        )


def specifications(context: CheckContext) -> Iterable[Row]:
    """CDI specifications that name nodes which are not there, as after a change of the driver."""
    if isinstance(context.inventory, TkError):
        return
    for spec in context.inventory.cdi:
        known = [one for one in spec.nodes if any(fnmatchcase(one, pattern) for pattern in NODES)]
        missing = [one for one in known if one not in context.inventory.nodes]
        if missing:
            yield Row(
                "cdi",
                "problem",
                f"{spec.path} names {missing[0]}, which is not there",
                "the specification is older than the driver or the devices",
                f"`sudo nvidia-ctk cdi generate --output={spec.path}`"
                if spec.kind.startswith("nvidia")
                else "make it anew with the vendor's tool (`amd-ctk cdi generate`)",
            )


def hygon_libraries(context: CheckContext) -> Iterable[Row]:
    """Newer DCU drivers bring libraries that containers need."""
    inventory = context.inventory
    if isinstance(inventory, TkError) or not inventory.of("hygon") or inventory.hyhal:
        return
    yield Row(
        "hyhal",
        "warning",
        "there is no /opt/hyhal",
        "images of DTK 24.04 and newer need it; drivers before that do not bring it",
        "install a newer DCU driver (rock-*.run), or use an older DTK",
    )


def fit(context: CheckContext) -> Iterable[Row]:
    """Driver and architectures against the chosen images."""
    from toolchain.devices.drivers import check_fit

    if isinstance(context.inventory, TkError):
        return
    for name, named in context.images:
        if isinstance(named, TkError) or named.plan.resolution is None:
            continue
        for one in check_fit(context.inventory, named.plan.resolution):
            cause = f"{one.cause} [{one.source}]" if one.source and one.state != "ok" else one.cause
            yield Row(f"driver for {name}", one.state, one.what, cause, one.fix)
