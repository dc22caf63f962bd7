"""An engine for unit tests that answers what it is told; nothing is run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolchain.engine.client import Finished
from toolchain.engine.endpoint import Endpoint


@dataclass
class FakeEngine:
    """Stands in for `Engine`: facts of an engine, its images by reference, its containers."""

    kind: str = "docker"
    version: str = "28.2.2"
    url: str = "unix:///var/run/docker.sock"
    info: Mapping[str, Any] = field(default_factory=dict)
    images: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    containers: list[Mapping[str, Any]] = field(default_factory=list)
    answer: Finished = field(default_factory=lambda: Finished(0, ""))
    asked: list[tuple[str, list[str], dict[str, Any]]] = field(default_factory=list)

    @property
    def endpoint(self) -> Endpoint:
        return Endpoint(self.url, "the default")

    @property
    def is_local(self) -> bool:
        return self.endpoint.is_local

    @property
    def is_rootless(self) -> bool:
        return any("rootless" in one for one in self.info.get("SecurityOptions", ()))

    @property
    def api(self) -> FakeApi:
        return FakeApi(self)

    @contextlib.contextmanager
    def guard(self, _doing: str, _seconds: float | None = None) -> Iterator[None]:
        yield

    def image(self, reference: str) -> Mapping[str, Any] | None:
        return self.images.get(reference)

    def run(self, image: str, argv: list[str], **options: Any) -> Finished:
        self.asked.append((image, argv, options))
        return self.answer


@dataclass
class FakeApi:
    """The part of the SDK's client that listing needs."""

    engine: FakeEngine

    def images(self, **_filters: Any) -> list[Mapping[str, Any]]:
        return list(self.engine.images.values())

    def containers(self, **_filters: Any) -> list[Mapping[str, Any]]:
        return self.engine.containers
