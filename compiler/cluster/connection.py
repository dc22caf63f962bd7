"""A connection to a cluster's scheduler: who is there, work for them, what came of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from compiler.cluster.address import ClusterAddress, security_of
from compiler.core.diagnostics import HostError

Future = Any
"""What stands for the result of work on a worker."""
_PATIENCE_SECONDS = 20


class Cluster:
    """A connection; raises HostError where no scheduler answers, or there is no package `distributed`."""

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        check_package(address.where)
        address.check()
        security = security_of(address.tls, address.where, encrypted=address.is_encrypted)
        from distributed import Client

        connect: Any = Client  # its signature has no types
        try:
            self._client = connect(
                address.text, timeout=_PATIENCE_SECONDS, set_as_default=False, security=security
            )
        except (OSError, TimeoutError, ValueError) as error:
            raise HostError(
                "the cluster's scheduler does not answer",
                where=address.where,
                why=str(error),
                hint="start it with `tk tune scheduler` or `dask scheduler`, and workers of it",
            ) from error

    def workers(self) -> dict[str, Mapping[str, float]]:
        """Addresses of workers, with the resources of each; raises HostError without a scheduler."""
        try:
            found = self._client.scheduler_info(n_workers=-1).get("workers")
        except (OSError, TimeoutError, ValueError) as error:
            raise self.lost(str(error)) from error
        if found is None or self._client.status != "running":  # it looks for the scheduler, in vain or not
            raise self.lost()
        return {str(address): dict(one.get("resources", {})) for address, one in found.items()}

    def submit(
        self,
        work: Callable[..., Any],
        *arguments: object,
        resource: str = "",
        workers: Sequence[str] | None = None,
    ) -> Future:
        """Have a function of ours called on a worker with a resource, one of those named if any are.

        Arguments are bytes, JSON, and futures, for which the worker gets their results.
        """
        wanted = {resource: 1} if resource else None
        named = list(workers) if workers is not None else None
        return self._client.submit(work, *arguments, resources=wanted, workers=named, pure=False, retries=0)

    def send(self, content: bytes, worker: str) -> Future:
        """Bytes that a worker keeps while somebody holds the future."""
        return self._client.scatter(content, workers=[worker], hash=False)

    def lost(self, why: str = "") -> HostError:
        """The error that the scheduler is gone."""
        return HostError(
            "the cluster's scheduler is gone",
            where=self.address.where,
            why=why,
            hint="start it again; what was recorded is kept, and the same command goes on from there",
        )

    def forget(self, futures: Sequence[Future]) -> None:
        """Let nobody begin with work whose results are not wanted any more."""
        waiting = [one for one in futures if not one.done()]
        if waiting and self._client.status == "running":
            self._client.cancel(waiting)

    def close(self) -> None:
        """Leave the cluster; what nobody waits for any more is dropped there."""
        self._client.close()


def check_package(where: str) -> None:
    """Raise HostError without the package `distributed`."""
    try:
        import distributed  # noqa: F401 - only whether it is there
    except ImportError as error:
        raise HostError(
            "the package `distributed` is not installed",
            where=where,
            hint="pip install 'tk-toolchain[cluster]'",
        ) from error


def here() -> str:
    """The address of the worker that does this; empty where it is none."""
    from distributed import get_worker

    try:
        return str(get_worker().address)
    except ValueError:
        return ""
