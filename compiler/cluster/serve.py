"""Scheduler and workers of a cluster: they listen to this machine alone unless they are told otherwise."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compiler.cluster.address import LOOPBACK, ClusterAddress, TlsFiles, check_encrypted, security_of
from compiler.cluster.connection import check_package

_PAGES = f"{LOOPBACK}:0"
"""Where Dask's own pages about a process are: never beyond this machine."""
_SLOTS = 2
"""Of a worker: one for its work, one to answer who it is meanwhile."""


@dataclass(frozen=True, slots=True)
class SchedulerPlace:
    """Where a scheduler listens: TLS where it has files for it, or beyond this machine."""

    host: str = LOOPBACK
    port: int = 8786
    tls: TlsFiles = field(default_factory=TlsFiles)

    @property
    def is_encrypted(self) -> bool:
        """Whether it speaks TLS."""
        return self.tls.cert is not None


def serve_scheduler(place: SchedulerPlace, announce: Callable[[str], None]) -> None:
    """Be a scheduler until SIGINT or SIGTERM; `announce` hears its address.

    Raises UsageError beyond this machine without TLS, HostError without the package or the port.
    """
    where = f"--host {place.host}"
    check_package("tk tune scheduler")
    check_encrypted(place.host, where, encrypted=place.is_encrypted)
    security = security_of(place.tls, where, encrypted=place.is_encrypted)
    from distributed import Scheduler

    _talk_little()

    def make() -> Any:
        return Scheduler(
            host=place.host,
            port=place.port,
            protocol="tls" if place.is_encrypted else "tcp",
            dashboard=False,
            dashboard_address=_PAGES,
            security=security,
        )

    asyncio.run(_serve(make, announce))


def serve_worker(
    address: ClusterAddress,
    host: str,
    resources: Mapping[str, float],
    directory: Path,
    announce: Callable[[str], None],
) -> None:
    """Be a worker with these resources until the scheduler is gone, SIGINT or SIGTERM.

    host: the name under which others reach it. directory: what Dask writes.
    """
    security = security_of(address.tls, address.where, encrypted=address.is_encrypted)
    import dask.config
    from distributed import Worker

    _talk_little()
    dask.config.set({"distributed.worker.profile.enabled": False})  # it looks 100 times a second

    def make() -> Any:
        return Worker(
            address.text,
            host=host,
            nthreads=_SLOTS,
            resources=dict(resources),
            dashboard=False,
            dashboard_address=_PAGES,
            security=security,
            local_directory=str(directory),
            memory_limit=0,  # what is ours has limits of its own
        )

    asyncio.run(_serve(make, announce))


def _talk_little() -> None:
    """Of what Dask has to say, only warnings."""
    logging.getLogger("distributed").setLevel(logging.WARNING)


async def _serve(make: Callable[[], Any], announce: Callable[[str], None]) -> None:
    """Run a server of Dask's to its end, which a signal may bring about."""
    loop, asked = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, asked.set)
    stop = asyncio.create_task(asked.wait())
    starting = asyncio.ensure_future(_started(make))
    await asyncio.wait({starting, stop}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        starting.cancel()
        return
    server = starting.result()
    announce(str(server.address))
    ended = asyncio.create_task(server.finished())
    await asyncio.wait({ended, stop}, return_when=asyncio.FIRST_COMPLETED)
    await server.close()


async def _started(make: Callable[[], Any]) -> Any:
    return await make()
