"""Which devices the drivers of this machine offer; asked in another process, as a driver may crash."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path

from compiler.core.diagnostics import TkError
from compiler.core.process import run
from compiler.core.settings import Settings
from compiler.runtime.vendor_runtimes import runtime_environment

_PROGRAM = Path(__file__).with_name("probe_child.py")
NO_LIBRARY = "no library"
"""The answer where the driver's library is not here."""

_LIMIT_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class ProbedDevice:
    """A device as its driver names it.

    kind: `cpu` or `gpu`. vendor: identifier of the maker on the PCI bus, 0 where it is not told.
    platform: the driver. arch: `sm_90`, `gfx906`; empty where it is not told. driver: its version, likewise.
    """

    name: str
    kind: str
    vendor: int = 0
    platform: str = ""
    arch: str = ""
    driver: str = ""

    @property
    def title(self) -> str:
        """The name, with the version of the driver."""
        return f"{self.name}, driver {self.driver}" if self.driver else self.name


def probe_devices(interface: str, settings: Settings) -> tuple[ProbedDevice, ...] | str:
    """What `opencl`, `cuda` or `hip` offers here, or in words why nothing."""
    argv = [sys.executable, "-I", "-S", str(_PROGRAM), interface]
    try:
        done = run(argv, env=runtime_environment(settings), timeout=_LIMIT_SECONDS)
    except TkError as error:
        return f"the driver was asked in vain: {error.what}"
    if done.returncode != 0:
        ended = f"signal {-done.returncode}" if done.returncode < 0 else f"status {done.returncode}"
        return f"asking the driver ended with {ended}"
    answer = json.loads(done.stdout.splitlines()[-1])
    if isinstance(answer, str):
        return answer
    return tuple(ProbedDevice(**one) for one in answer)
