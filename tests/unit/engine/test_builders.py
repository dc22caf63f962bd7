"""Which client builds, with which words; contexts as archives; causes found in logs."""

from __future__ import annotations

import io
import os
import tarfile
import types
from pathlib import Path
from typing import Any

import pytest

from compiler import UsageError
from tests.support.plans import small_plan
from toolchain.engine import builders, labels
from toolchain.engine.build import build_image
from toolchain.engine.builders import BuildKitClient, BuildRequest, archive, find_buildkit, json_objects
from toolchain.engine.client import _normal
from toolchain.engine.store import short
from toolchain.explain.causes import known_causes
from toolchain.images.plan import ContextFile, Download, Plan
from toolchain.settings import EngineSettings, engine_settings

OLD = 'echo "Docker version 20.10.24+dfsg1, build 297e128"'
NEW = 'echo "Docker version 28.2.2, build e6534b4"'
BUILDX = 'echo "github.com/docker/buildx v0.17.1 257815a"'


def docker(folder: Path, version: str, buildx: str = "exit 1") -> Path:
    folder.mkdir(parents=True)
    program = folder / "docker"
    program.write_text(f'#!/bin/sh\ncase "$1" in\nbuildx) {buildx} ;;\n--version) {version} ;;\nesac\n')
    program.chmod(0o755)
    return folder


def searching(*folders: Path) -> EngineSettings:
    return engine_settings({**os.environ, "PATH": os.pathsep.join([*map(str, folders), os.environ["PATH"]])})


def test_the_first_client_that_works(tmp_path: Path) -> None:
    new, old = docker(tmp_path / "new", NEW), docker(tmp_path / "old", OLD)
    client, reasons = find_buildkit(searching(new, old))
    assert client == BuildKitClient(old / "docker", ("build",), "20.10.24")
    [reason] = reasons
    assert reason == f"{new}/docker 28.2.2 lacks its component buildx (package docker-buildx-plugin)"


def test_buildx_counts_first(tmp_path: Path) -> None:
    folder = docker(tmp_path / "x", NEW, BUILDX)
    client, _ = find_buildkit(searching(folder))
    assert client == BuildKitClient(folder / "docker", ("buildx", "build", "--load"), "0.17.1")
    assert client.has_buildx


def test_no_client(tmp_path: Path) -> None:
    own = engine_settings({"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert find_buildkit(own) == (None, ("no program `docker` is on the PATH",))


def request(**changes: Any) -> BuildRequest:
    return BuildRequest("tk/x:1", (), **changes)


def test_words_of_buildx() -> None:
    client = BuildKitClient(Path("docker"), ("buildx", "build", "--load"), "0.17.1")
    given = list(builders._options(client, request(cache_to=("type=local,dest=x",), labels={"a": "b"})))
    assert given[-2:] == ["--provenance", "false"]
    assert given[given.index("--cache-to") :][:2] == ["--cache-to", "type=local,dest=x"]
    assert "a=b" in given


def test_older_clients_keep_a_cache_in_the_image_only() -> None:
    client = BuildKitClient(Path("docker"), ("build",), "20.10.24")
    given = list(builders._options(client, request(cache_to=("type=inline",), cache_from=("r/x",))))
    assert "BUILDKIT_INLINE_CACHE=1" in given
    assert given[given.index("--cache-from") :][:2] == ["--cache-from", "r/x"]
    with pytest.raises(UsageError, match="needs Docker's component buildx"):
        list(builders._options(client, request(cache_to=("type=registry,ref=x",))))


def test_archives_are_the_same_bytes_in_any_order() -> None:
    files = [ContextFile("b/x.sh", b"echo", 0o755), ContextFile("Dockerfile", b"FROM x")]
    data = archive(files)
    assert data == archive(list(reversed(files)))
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        facts = [(one.name, one.mode, one.uid, one.mtime) for one in tar]
    assert facts == [("Dockerfile", 0o644, 0, 0), ("b/x.sh", 0o755, 0, 0)]


def test_objects_in_parts() -> None:
    parts = ['{"stream": "a"}\r\n{"stre', 'am": "b{"}{"err', 'or": "c"}\n', "[1]", '{"cut": ']
    assert list(json_objects(iter(parts))) == [{"stream": "a"}, {"stream": "b{"}, {"error": "c"}]


def issue(name: str, *patterns: str) -> Any:
    said = {"cause": "why", "evidence": "where", "action": "do", "level": "error", "follows": ()}
    return types.SimpleNamespace(id=name, patterns=patterns, together=(), **said)


def test_causes_are_found_by_plain_text_with_stars() -> None:
    lines = [
        "x",
        "E: Failed to fetch http://a/b  404  Not Found [IP: 1.2.3.4]",
        "no space left on device",
        "end",
    ]
    issues = [
        issue("full", "no space left"),
        issue("gone", "Failed to fetch*404"),
        issue("no", "aaaa.b", "(xxxx"),
    ]
    assert [one.issue for one in known_causes(lines, issues)] == ["gone", "full"]
    assert known_causes([], issues) == ()


def test_a_cause_far_above_is_not_taken() -> None:
    assert known_causes(["no space left", *["x"] * 300], [issue("full", "no space left")]) == ()


def test_names() -> None:
    assert short("docker.io/library/x:1") == short("localhost/x:1") == "x:1"
    assert str(_normal(Path("/etc/../usr/./lib"))) == "/usr/lib"  # type: ignore[arg-type]


def test_owners() -> None:
    mine = labels.owner()
    assert not labels.is_abandoned(mine)
    host, pid, started = mine.rsplit(":", 2)
    assert labels.is_abandoned(f"{host}:{pid}:{int(started) - 1}")
    assert labels.is_abandoned(f"{host}:4194304:1")
    assert not labels.is_abandoned(f"another-host:{pid}:1")
    assert not labels.is_abandoned("nonsense")


def test_unresolved_parts_are_named_at_once() -> None:
    import dataclasses

    from compiler import BadInputError

    plan: Plan = dataclasses.replace(
        small_plan("x"), downloads=tuple(Download(f"https://x/{i}", "unresolved", f"/{i}") for i in range(2))
    )
    with pytest.raises(BadInputError) as caught:
        build_image(NoImages(), plan)  # type: ignore[arg-type]
    assert caught.value.why.count("\n") == 1
    assert "tk image lock" in caught.value.hint


class NoImages:
    """An engine that has nothing."""

    def image(self, _reference: str) -> None:
        return None

    def guard(self, _doing: str) -> Any:
        import contextlib

        return contextlib.nullcontext()

    class api:  # noqa: N801
        containers = images = staticmethod(lambda **_options: [])
        volumes = staticmethod(lambda **_options: {"Volumes": None})


def test_an_archive_ends_where_its_content_does() -> None:
    """Podman 4.3 answers 500 ("broken pipe") when its reader leaves the padding of a tar unread."""
    data = archive([ContextFile("one", b"x" * 700)])
    assert len(data) == 512 + 1024 + 2 * 512
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        assert [one.name for one in tar] == ["one"]
