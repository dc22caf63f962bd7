"""A base that is gone: what a lock takes in its place, what is built on it, and who says so."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compiler import BadInputError, HostError
from tests.support.command import tk
from tests.support.recipes import plan
from toolchain.engine.endpoint import Endpoint
from toolchain.images.lock.file import Lock, LockedImage, write_lock
from toolchain.images.lock.pins import consult, recipe_of
from toolchain.images.plan import Pins, Plan
from toolchain.images.planner import plan_image
from toolchain.images.render import dockerfile
from toolchain.provision import locking, origins
from toolchain.provision.base_choice import choose_base
from toolchain.provision.resolving import Packages
from toolchain.site import Mirror, SiteConfig

NAME = "cuda-11.2.2"
FIRST = "nvidia/cuda:11.2.2-devel-ubuntu20.04"
NGC = "nvcr.io/nvidia/cuda:11.2.2-devel-ubuntu20.04"
UBUNTU = "ubuntu:20.04"
DIGEST = f"sha256:{'d' * 64}"
KEY = "https://developer.download.nvidia.com/compute/cuda/repos/ubuntu2004/x86_64/3bf863cc.pub"


class Engine:
    """An engine whose registries have `known`, and answer everything else with `error`."""

    kind = "docker"
    endpoint = Endpoint("unix:///var/run/docker.sock", "the default")

    def __init__(self, *known: str, error: str = "manifest unknown: manifest unknown") -> None:
        self.known, self.error = known, error
        self.asked: list[str] = []
        self.local: set[str] = set()
        self.api = SimpleNamespace(inspect_distribution=self._inspect, pull=self._pull)

    def _inspect(self, reference: str) -> dict[str, Any]:
        import docker.errors

        self.asked.append(reference)
        if reference.partition("@")[0] in self.known:
            return {"Descriptor": {"digest": DIGEST}}
        raise docker.errors.NotFound(self.error)

    def _pull(self, repository: str, *, tag: str, **_how: Any) -> Iterator[dict[str, str]]:
        """As engines do: an error comes in the stream of an answer that began well."""
        self.asked.append(f"{repository}:{tag}")
        if not {repository, f"{repository}:{tag}"} & {*self.known}:
            yield {"error": self.error}
            return
        self.local |= {f"{repository}:{tag}", f"{repository}@{tag}"}
        yield {"status": "pulled"}

    def image(self, reference: str) -> dict[str, Any] | None:
        if reference not in self.local:
            return None
        repository = reference.partition("@")[0].rpartition(":")[0]
        return {"Id": reference, "RepoDigests": [f"{repository}@{DIGEST}"]}

    def guard(self, doing: str) -> contextlib.AbstractContextManager[None]:
        @contextlib.contextmanager
        def guarded() -> Any:
            import docker.errors

            try:
                yield
            except docker.errors.APIError as error:
                raise HostError(f"cannot {doing}: {error}") from error

        return guarded()


def chosen(engine: Engine, name: str = NAME, old: Pins | None = None, **site: Any) -> tuple[str, str]:
    some: Any = engine
    return choose_base(some, plan(name), SiteConfig(**site), old or Pins(), lambda _text: None)


def test_the_recipe_s_base_while_there_is_one() -> None:
    assert chosen(Engine(FIRST, NGC, UBUNTU)) == ("", "")  # the recipe has its digest
    here = Engine()
    here.local.add(plan(NAME).base.pinned)
    assert chosen(here) == ("", "")
    assert here.asked == []


def test_the_first_fallback_that_there_is() -> None:
    assert chosen(Engine(NGC, UBUNTU)) == (DIGEST, NGC)
    assert chosen(Engine(UBUNTU)) == (DIGEST, UBUNTU)
    with pytest.raises(HostError, match=rf"{FIRST}, nor {NGC}, {UBUNTU}"):
        chosen(Engine())


def test_a_registry_that_cannot_be_asked_is_no_reason() -> None:
    with pytest.raises(HostError, match="dial tcp"):
        chosen(Engine(NGC, error="dial tcp: lookup registry-1.docker.io: no such host"))


@pytest.mark.parametrize(
    ("error", "taken"),
    [
        ("manifest unknown: manifest unknown", NGC),
        ("dial tcp: lookup registry-1.docker.io: no such host", ""),
    ],
)
def test_podman_says_in_the_middle_of_its_answer_what_is_wrong(error: str, taken: str) -> None:
    """Its socket cannot ask a registry, so the image is pulled."""
    engine = Engine(NGC, error=error)
    engine.kind = "podman"
    if taken:
        assert chosen(engine) == (DIGEST, taken)
        return
    with pytest.raises(HostError, match="no such host"):
        chosen(engine)


def test_a_base_that_cannot_be_pulled_is_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locking, "resolve_packages", lambda *_a, **_k: Packages({"g++": "1"}, {}))
    engine: Any = Engine(FIRST, error="no space left on device")
    engine.api.pull = lambda *_a, **_k: iter([{"error": "no space left on device"}])
    with pytest.raises(HostError, match="no space left on device"):
        locking.lock_plan(engine, plan(NAME), SiteConfig(), lambda _pins: plan(NAME))


def test_what_was_taken_stays_taken() -> None:
    engine = Engine(FIRST)
    assert chosen(engine, old=Pins(base_digest=DIGEST, base_reference=UBUNTU)) == (DIGEST, UBUNTU)
    assert engine.asked == []


def test_a_site_s_mirror_is_asked() -> None:
    engine = Engine("hub.example.com/library/ubuntu:20.04")
    mirrors = (Mirror("docker.io", "hub.example.com"), Mirror("nvcr.io", "hub.example.com/ngc"))
    assert chosen(engine, registry_mirrors=mirrors) == (DIGEST, UBUNTU)
    assert all(one.startswith("hub.example.com/") for one in engine.asked)


def test_without_fallbacks_all_is_as_ever() -> None:
    engine = Engine()
    assert chosen(engine, "cuda-11.8.0") == ("", "")  # its digest is known
    assert engine.asked == []
    with pytest.raises(HostError, match=r"no registry says the digest of rocm/dev-ubuntu-20.04:5.4.3\n"):
        chosen(engine, "rocm-5.4.3")


def locked_on(reference: str) -> Plan:
    resolution = plan(NAME).resolution
    assert resolution is not None
    return plan_image(resolution, lock=Pins(base_digest=DIGEST, base_reference=reference))


def test_another_image_gets_what_it_lacks() -> None:
    text = dockerfile(locked_on(UBUNTU))
    assert f"FROM ubuntu:20.04@{DIGEST} AS system" in text
    assert "cuda-toolkit-11-2" in text
    assert "/etc/apt/sources.list.d/tk-cuda.sources" in text
    assert KEY in {one.url for one in locked_on(UBUNTU).downloads}
    same = dockerfile(locked_on(NGC))
    assert f"FROM {NGC}@{DIGEST} AS system" in same
    assert "cuda-toolkit-11-2" not in same
    assert locked_on(NGC).section == locked_on(UBUNTU).section == NAME
    again = locked_on(UBUNTU).resolution
    assert again is not None
    pins = Pins(base_digest=DIGEST, base_reference=UBUNTU)
    assert plan_image(again, lock=pins).key == locked_on(UBUNTU).key


def test_a_lock_of_the_fallback_has_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(origins, "download", lambda _url, _site: "b" * 64)
    monkeypatch.setattr(locking, "resolve_packages", lambda *_a, **_k: Packages({"g++": "1"}, {}))
    engine: Any = Engine(UBUNTU)
    resolution = plan(NAME).resolution
    assert resolution is not None
    section = locking.lock_plan(
        engine, plan(NAME), SiteConfig(), lambda pins: plan_image(resolution, lock=pins)
    )
    assert (section.pins.base_reference, section.pins.base_digest) == (UBUNTU, DIGEST)
    assert section.pins.downloads == {}, "its key is known by its fingerprint"
    assert section.recipe == recipe_of(plan(NAME))


def test_a_fallback_that_the_recipe_no_longer_has() -> None:
    pins = Pins(base_reference="gone.example.com/cuda:1", apt=dict.fromkeys(plan(NAME).apt, "1"))
    lock = Lock({NAME: LockedImage(recipe_of(plan(NAME)), FIRST, pins)})
    with pytest.raises(BadInputError, match="the lock does not fit"):
        consult(plan(NAME), lock, "frozen")


def test_why_says_which_was_taken(tmp_path: Path) -> None:
    told = tk("image", "why", "cuda-11.2", cwd=tmp_path)
    assert f"{NGC}: a fallback" in told.out
    assert "taken when" not in told.out
    pins = Pins(base_reference=NGC, base_digest=DIGEST, apt=dict.fromkeys(plan(NAME).apt, "1"))
    write_lock(tmp_path / "tk.lock", Lock({NAME: LockedImage(recipe_of(plan(NAME)), FIRST, pins)}))
    told = tk("image", "why", "cuda-11.2", cwd=tmp_path)
    assert f"{NGC}: taken when tk.lock was made, as the registry no longer had {FIRST}" in told.out
