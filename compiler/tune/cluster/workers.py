"""The workers of this machine: a process for each candidate built at a time, and one that measures."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from compiler.cluster.address import LOOPBACK, ClusterAddress, check_encrypted, is_loopback, security_of
from compiler.cluster.connection import check_package
from compiler.core.diagnostics import CrashError, UsageError
from compiler.core.process import run, stopping
from compiler.core.settings import child_environment
from compiler.tune.cluster.roster import BUILD, MEASURE
from compiler.tune.environment import processor_name
from compiler.verify.isolate import python_module

_AGAIN_SECONDS = 1.0
_LAST_LINES = 3
Say = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What workers of this machine do for a cluster.

    build: candidates at a time. measure: whether one measures; key: what its device is called, by default the
    processor's name. host: under which others reach this machine.
    """

    cluster: ClusterAddress
    build: int = 0
    measure: bool = False
    key: str = ""
    host: str = ""

    @property
    def device_key(self) -> str:
        """What the device is called."""
        return self.key or re.sub(r"[^a-z0-9]+", "-", processor_name().lower()).strip("-")

    def roles(self) -> Iterator[tuple[str, Mapping[str, float]]]:
        """What each worker is called for people, and its resources."""
        for number in range(self.build):
            yield f"builder {number + 1}", {BUILD: 1}
        if self.measure:
            yield f"measurer of {self.device_key}", {f"{MEASURE}{self.device_key}": 1}


def run_workers(plan: WorkerPlan, say: Say) -> None:
    """Be workers of a cluster until the process is told to end; one that ends begins again.

    A scheduler that is not there is waited for. `say` hears who is there and who was lost.

    Raises UsageError for a plan without work and for one that would listen beyond this machine without TLS,
    HostError where the package or certificates are missing.
    """
    check_package(plan.cluster.where)
    plan.cluster.check()
    host = _host_of(plan)
    security_of(plan.cluster.tls, plan.cluster.where, encrypted=plan.cluster.is_encrypted)
    roles = list(plan.roles())
    if not roles:
        raise UsageError("a worker builds, measures or both", hint="give --build N, --measure or both")
    over = threading.Event()
    with ThreadPoolExecutor(len(roles)) as pool:
        try:
            for future in [pool.submit(_keep, plan, host, *role, say, over) for role in roles]:
                future.result()
        finally:
            over.set()


def _host_of(plan: WorkerPlan) -> str:
    host = plan.host or LOOPBACK
    check_encrypted(host, f"--host {host}", encrypted=plan.cluster.is_encrypted)
    if not plan.host and not is_loopback(plan.cluster.host):
        raise UsageError(
            "under which name do others reach this worker?",
            where=plan.cluster.where,
            why="the scheduler is on another machine, and workers send each other what they built",
            hint="name an address of this machine: `--host ADDRESS`",
        )
    return host


def _keep(
    plan: WorkerPlan, host: str, name: str, resources: Mapping[str, float], say: Say, over: threading.Event
) -> None:
    """Have one worker run, again whenever it ends."""
    request = {
        "cluster": plan.cluster.text,
        "tls": [None if one is None else str(one) for one in _files(plan.cluster)],
        "host": host,
        "resources": resources,
    }
    while not (over.is_set() or stopping()):
        try:
            done = run(
                python_module("compiler.tune.cluster.worker_child"),
                env=child_environment(PYTHONPATH=os.pathsep.join(filter(None, sys.path))),
                input=json.dumps(request).encode(),
                on_line=lambda address: say(f"{name}: {address}"),
            )
        except CrashError as error:
            say(f"{name}: {error.what}")
            continue
        if over.is_set() or stopping():
            return
        last = " / ".join(done.stderr.strip().splitlines()[-_LAST_LINES:]) if done.returncode else ""
        say(f"{name} ended{f': {last}' if last else ''}; it begins again")
        over.wait(_AGAIN_SECONDS)


def _files(address: ClusterAddress) -> tuple[object, ...]:
    return address.tls.ca, address.tls.cert, address.tls.key
