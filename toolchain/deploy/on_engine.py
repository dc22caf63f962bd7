"""A packaged image on an engine: loaded, tested with the least rights that do, pushed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from compiler import HostError, WrongResultError
from toolchain.deploy.ground import WRITABLE, Ground
from toolchain.deploy.slim import RUNNER
from toolchain.devices.detect import detect
from toolchain.devices.host_facts import read_facts, this_caller
from toolchain.devices.options import create_arguments
from toolchain.devices.privileges import find_lacks, run_options
from toolchain.devices.sysroot import capture

if TYPE_CHECKING:
    from toolchain.engine.client import Engine

LEAST_RIGHTS = ("--network none", "--read-only", "--cap-drop ALL", "--security-opt no-new-privileges")
"""What a container of a packaged image does with, as engines' command lines say it; as the SDK says it:"""
_HOST = {
    "network_mode": "none",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}
_TEST_SECONDS = 600.0


def load_archive(engine: Engine, path: Path, reference: str) -> int:
    """Load an image's archive into an engine; returns the bytes that it takes there. Raises HostError."""
    with engine.guard(f"load the image {reference}"), path.open("rb") as stream:
        for _ in engine.api.load_image(stream):
            pass
    facts = engine.image(reference)
    if facts is None:
        raise HostError(f"the engine at {engine.endpoint} loaded {path.name}, but has no {reference} now")
    return int(facts["Size"])


def needed_on(engine: Engine, ground: Ground | None) -> Mapping[str, Any] | str:
    """What a container needs for its accelerators on the engine's machine, as the SDK says it; or why not."""
    if ground is None:
        return {}
    writable = {"tmpfs": {WRITABLE: "rw,nosuid,nodev,exec,mode=1777"}}
    if ground.vendor is None:
        return writable
    if not engine.is_local:
        return "the engine is on another machine, whose accelerators were not looked at"
    inventory = detect(capture())
    facts = read_facts(engine.kind, engine.version, engine.info, is_local=True)
    caller = this_caller()
    if lacks := find_lacks(inventory, ground.vendor, facts, caller):
        return "; ".join(one.what for one in lacks)
    return {**create_arguments(run_options(inventory, ground.vendor, facts, caller))["host"], **writable}


def self_test(engine: Engine, reference: str, needed: Mapping[str, Any]) -> str:
    """What the self test of a loaded image says, in a container with the least rights and what is `needed`.

    Raises WrongResultError where the result differs, HostError where it cannot run.
    """
    done = engine.run(reference, [RUNNER, "--check"], timeout=_TEST_SECONDS, host={**_HOST, **needed})
    if done.code == 0:
        return done.output
    kind = WrongResultError if done.code == WrongResultError.default_code else HostError
    raise kind("the self test of the image fails", where=reference, why=done.output.strip())
