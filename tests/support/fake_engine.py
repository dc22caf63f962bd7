"""An engine for unit tests that answers what it is told; nothing is run."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from toolchain.engine.client import Finished
from toolchain.engine.endpoint import Endpoint
from toolchain.images.plan import Plan


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
    pushed: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
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
    """The part of the SDK's client that listing and pushing need."""

    engine: FakeEngine

    def images(self, **_filters: Any) -> list[Mapping[str, Any]]:
        return list(self.engine.images.values())

    def containers(self, **_filters: Any) -> list[Mapping[str, Any]]:
        return self.engine.containers

    def push(self, repository: str, *, tag: str, **_how: Any) -> Iterator[Mapping[str, Any]]:
        self.engine.pushed.append(f"{repository}:{tag}")
        yield {"aux": {"Digest": f"sha256:{hashlib.sha256(self.engine.pushed[-1].encode()).hexdigest()}"}}

    def tag(self, *_names: str, **_how: Any) -> None:
        """One more name; nobody asks for it."""

    def remove_image(self, name: str, **_how: Any) -> None:
        self.engine.removed.append(name)

    def volumes(self, **_filters: Any) -> Mapping[str, Any]:
        return {"Volumes": []}


def stored(plan: Plan, identity: str = "") -> Mapping[str, Any]:
    """What an engine says of the image that was built from a plan."""
    labels = dict(plan.build_labels)
    return {
        "Id": identity or f"sha256:{plan.key}",
        "RepoTags": [plan.reference],
        "Labels": labels,
        "Config": {"Labels": labels},
    }
