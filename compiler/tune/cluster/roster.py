"""Which workers of a cluster take part: those with the tuner's tk and compiler, and with the asked device."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from compiler.cluster.connection import Cluster, Future
from compiler.core.diagnostics import HostError, TkError, UsageError
from compiler.core.progress import Progress, silent
from compiler.tune.cluster.message import Header, environment_from, pack_message, unpack_message
from compiler.tune.cluster.work import carry_out
from compiler.tune.environment import differences
from compiler.tune.record import Environment
from compiler.verify.isolate import error_of

BUILD, MEASURE = "build", "measure:"
"""Resources of workers: the second one is followed by a device's key."""
PATIENCE_SECONDS = 120.0
"""How long a search waits for a worker that it cannot do without."""
_LOOK_SECONDS, _BLINK_SECONDS = 1.0, 0.05
_MADE_BY = ("target", "arch", "compiler", "flags", "tk")
"""What builders and the tuner have to have in common with the measurer: what makes machine code."""
_TOLD = 3


@dataclass(slots=True)
class Roster:
    """The workers that take part in a search for one device.

    asked: the target, as `described_target` has it, and threads. environment: of the device, which all
    measurers have to have. refused: why others take no part, by their addresses.
    """

    cluster: Cluster
    key: str
    asked: Header
    environment: Environment
    progress: Progress = silent
    patience: float = PATIENCE_SECONDS
    refused: dict[str, str] = field(default_factory=dict)
    _environments: dict[str, Environment] = field(default_factory=dict)
    _answers: dict[str, Future] = field(default_factory=dict)

    def wait(self, role: str) -> list[str]:
        """Addresses of workers with a role that take part, at least one.

        Raises HostError where there is none for too long, or no scheduler any more.
        """
        until = time.monotonic() + self.patience
        while not (found := self.present(role)):
            if time.monotonic() > until:
                raise self._nobody(role)
            self.progress(f"waiting for a worker with the resource {role}", 0, 0)
            time.sleep(_BLINK_SECONDS if self._answers else _LOOK_SECONDS)
        return found

    def present(self, role: str) -> list[str]:
        """Addresses of workers with a role that are there now and take part."""
        with_role = [one for one, resources in self.cluster.workers().items() if resources.get(role)]
        self._meet([one for one in with_role if one not in self.refused])
        return [one for one in with_role if one not in self.refused and self._fits(one, role)]

    def refuse(self, address: str, why: str) -> None:
        """Let a worker take no part any more."""
        self.refused[address] = why

    def _meet(self, addresses: Sequence[str]) -> None:
        """Ask those that are new who they are, and hear those that have answered."""
        for address in addresses:
            if address not in self._environments and address not in self._answers:
                asked = pack_message({"do": "describe", **self.asked})
                self._answers[address] = self.cluster.submit(carry_out, asked, workers=[address])
        for address, future in list(self._answers.items()):
            if not future.done():
                continue
            del self._answers[address]
            if future.status != "finished":
                continue  # it went away meanwhile
            try:
                self._environments[address] = environment_from(answer(future.result())["environment"])
            except TkError as error:
                self.refuse(address, error.what)

    def _fits(self, address: str, role: str) -> bool:
        found = self._environments.get(address)
        if found is None:
            return False
        differs = [name for name in _MADE_BY if getattr(found, name) != getattr(self.environment, name)]
        if role != BUILD:
            differs = list(dict.fromkeys((*differs, *differences(self.environment, found))))
        if differs:
            self.refuse(address, difference_text(differs, self.environment, found))
        return not differs

    def _nobody(self, role: str) -> HostError:
        others = [f"{address}: {why}" for address, why in list(self.refused.items())[:_TOLD]]
        why = "those that are there take no part:\n" + "\n".join(others) if others else ""
        words = "--build 1" if role == BUILD else f"--measure --device-key {self.key}"
        return HostError(
            f"no worker of the cluster has the resource {role}",
            where=self.cluster.address.where,
            why=why,
            hint=f"start one: `tk tune worker --cluster {self.cluster.address.text} {words}`",
        )


def difference_text(names: Sequence[str], wanted: Environment, found: Environment) -> str:
    """In what an environment is not the wanted one."""
    return ", ".join(f"{one} is {getattr(found, one)}, not {getattr(wanted, one)}" for one in names)


def made_alike(wanted: Environment, found: Environment) -> list[str]:
    """In what two environments differ that makes other machine code."""
    return [name for name in _MADE_BY if getattr(wanted, name) != getattr(found, name)]


def answer(message: bytes) -> dict[str, Any]:
    """The header of a worker's answer; raises the error that it has."""
    header, _ = unpack_message(message)
    if "error" in header:
        raise error_of(header["error"])
    return header


def device_key(cluster: Cluster, key: str | None, patience: float, progress: Progress) -> str:
    """The key of the device to tune for: `key`, or that of the cluster's only one.

    Raises UsageError where there are several, HostError where no worker measures.
    """
    until = time.monotonic() + patience
    while True:
        found = _keys(cluster.workers())
        if key in found or (len(found) == 1 and key is None):
            return key or found[0]
        if len(found) > 1 and key is None:
            hint = "name one with --device-key"
            raise UsageError(
                "for which device?",
                where=cluster.address.where,
                why=f"there are {', '.join(found)}",
                hint=hint,
            )
        if time.monotonic() > until:
            there = f"there are {', '.join(found)}" if found else "no worker measures"
            wanted = f" --device-key {key}" if key else ""
            hint = f"start one: `tk tune worker --cluster {cluster.address.text} --measure{wanted}`"
            raise HostError("nobody measures", where=cluster.address.where, why=there, hint=hint)
        progress("waiting for a worker that measures", 0, 0)
        time.sleep(_LOOK_SECONDS)


def _keys(workers: Mapping[str, Mapping[str, float]]) -> list[str]:
    names = {name for resources in workers.values() for name in resources if name.startswith(MEASURE)}
    return sorted(name.removeprefix(MEASURE) for name in names)
