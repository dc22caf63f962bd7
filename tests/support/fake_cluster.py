"""A cluster without processes: who has the resource does work at once, and workers are lost as scripted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compiler.cluster.address import ClusterAddress


@dataclass
class FakeFuture:
    """`pending` for ever, or done."""

    status: str
    value: Any = None

    def done(self) -> bool:
        """As Dask's."""
        return self.status != "pending"

    def result(self) -> Any:
        """As Dask's."""
        return self.value

    def exception(self) -> Exception:
        """As Dask's."""
        return RuntimeError("all workers died")


class FakeCluster:
    """Workers by address with their resources; `loses` tells who is lost with a resource's next work.

    done: the worker and resource of each piece of work, in order. Who is lost comes back as `back` says.
    """

    def __init__(
        self,
        workers: Mapping[str, str],
        loses: Callable[[str, str], bool] = lambda *_: False,
        back: Callable[[str], str | None] = lambda _: None,
    ) -> None:
        self.there = {address: {role: 1.0} for address, role in workers.items()}
        self.address = ClusterAddress("tcp://127.0.0.1:1")
        self.loses, self.back = loses, back
        self.done: list[tuple[str, str]] = []
        self.doing = ""

    def workers(self) -> dict[str, dict[str, float]]:
        """As `Cluster.workers`."""
        return dict(self.there)

    def submit(
        self,
        work: Callable[..., bytes],
        *arguments: Any,
        resource: str = "",
        workers: Sequence[str] | None = None,
    ) -> FakeFuture:
        """As `Cluster.submit`: done before it returns, or never."""
        able = [one for one in workers or self.there if one in self.there]
        able = [one for one in able if not resource or self.there[one].get(resource)]
        if not able:
            return FakeFuture("pending")
        if any(isinstance(one, FakeFuture) and not one.done() for one in arguments):
            return FakeFuture("pending")
        chosen = able[len(self.done) % len(able)]
        self.done.append((chosen, resource))
        if resource and self.loses(chosen, resource):
            role = self.there.pop(chosen)
            if again := self.back(chosen):
                self.there[again] = role
            words: dict[str, Any] = {"resource": resource, "workers": workers}
            return FakeCluster.submit(self, work, *arguments, **words)  # as Dask does
        self.doing = chosen
        given = [one.result() if isinstance(one, FakeFuture) else one for one in arguments]
        return FakeFuture("finished", work(*given))

    def send(self, content: bytes, worker: str) -> FakeFuture:
        """As `Cluster.send`."""
        return FakeFuture("finished" if worker in self.there else "pending", content)

    def forget(self, futures: Sequence[FakeFuture]) -> None:
        """As `Cluster.forget`."""

    def lost(self, why: str = "") -> Exception:
        """As `Cluster.lost`."""
        raise AssertionError(why)
