"""The recipes that need nothing but Debian and Python packages, really built, with `tk` as users type it."""

from __future__ import annotations

import io
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from compiler import load_settings
from tests.support.command import Result, tk
from tests.support.engine import TestEngine
from toolchain.engine import store
from toolchain.engine.client import Engine
from toolchain.site import load_site

pytestmark = pytest.mark.slow

NAMES = ("cpu", "cuda-12-pip", "rocm-5.2-debian", "cpu-sycl")
KERNEL = {"cuda-12-pip": "cubin for sm_70", "rocm-5.2-debian": "code object for gfx906"}
"""What the smoke test `kernel` says that it has made of a kernel written by hand."""
CASES = [
    *(pytest.param(("docker_engine", name), id=f"docker-{name}") for name in NAMES),
    pytest.param(("podman_engine", "cpu"), id="podman-cpu"),
    pytest.param(("podman_engine", "cuda-12-pip"), id="podman-cuda-12-pip"),
    pytest.param(("remote_engine", "cpu"), id="remote-cpu"),
    pytest.param(("remote_engine", "rocm-5.2-debian"), id="remote-rocm-5.2-debian"),
]
MARK = "# 7c1e5a-mark-of-the-site"


@pytest.fixture
def where(request: pytest.FixtureRequest) -> Iterator[tuple[TestEngine, str]]:
    fixture, name = request.param
    under_test: TestEngine = request.getfixturevalue(fixture)
    remove_stand_ins(under_test)
    yield under_test, name
    remove_stand_ins(under_test)


def remove_stand_ins(under_test: TestEngine) -> None:
    """Remove what was built on the tests' base; other images may be somebody's."""
    engine = under_test.open()
    ours = [one for one in store.list_images(engine, untagged=True) if one.stand_in == under_test.base]
    store.remove_images(engine, ours, force=True)


@pytest.mark.parametrize("where", CASES, indirect=True)
def test_build_and_check(where: tuple[TestEngine, str], tmp_path: Path) -> None:
    under_test, name = where

    def run(*arguments: object) -> Result:
        return tk("image", *arguments, "--docker-host", under_test.url, cwd=tmp_path, timeout=1800)

    base = ("--base", under_test.base)
    before = run("check", name, *base)
    assert (before.code, "tk image build" in before.err) == (4, True), before.err
    built = run("build", name, *base)
    assert built.code == 0, built.err[-3000:]
    reference = built.out.strip()
    assert reference.startswith("tk/")

    checked = run("check", name, *base, "--json")
    assert checked.code == 0, checked.out
    report = checked.json
    assert report["passed"]
    assert {one["verdict"] for one in report["smoke"]} == {"passed"}
    assert report["user"] not in ("root", "0", "0:0")
    said = " ".join(one["said"] for one in report["smoke"])
    assert KERNEL.get(name, "") in said

    times = []
    for _ in range(3):
        started = time.monotonic()
        again = run("build", name, *base)
        times.append(time.monotonic() - started)
        assert again.out.strip() == reference
    assert min(times) <= 2

    [listed] = [one for one in run("ls", "--json").json if reference in one["references"]]
    assert listed["state"] == "stand-in"
    removed = run("rm", reference, "--yes")
    assert (removed.code, removed.out.strip()) == (0, reference)
    rebuilt = run("build", name, *base, "--json")
    assert rebuilt.code == 0, rebuilt.err[-3000:]
    assert not rebuilt.json["cached"]


def test_what_a_user_adds_is_in_the_image_and_a_run_gets_what_it_asks_for(
    docker_engine: TestEngine, tmp_path: Path
) -> None:
    remove_stand_ins(docker_engine)
    (tmp_path / "mine.sh").write_text("#!/bin/sh\necho mine > /etc/mine\n")
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "one").write_text("set\n")
    more = ("--with-apt", "hello", "--with", "mine.sh", "--docker-host", docker_engine.url)

    def run(*arguments: object) -> Result:
        return tk("image", *arguments, cwd=tmp_path, timeout=1800)

    built = run("build", "cpu", *more, "--base", docker_engine.base)
    assert built.code == 0, built.err[-3000:]
    assert "-with-" in built.out
    said = "hello; cat /etc/mine /data/one; echo $LEVEL; touch /data/x 2>/dev/null || echo read only; pwd"
    extras = ("-v", "./sets:/data:ro", "-e", "LEVEL=3", "--workdir", "/data")
    seen = run("run", "cpu", *more, *extras, "--", "sh", "-c", said)
    assert (seen.code, seen.out) == (0, "Hello, world!\nmine\nset\n3\nread only\n/data\n"), seen.err
    assert run("check", "cpu", *more).code == 0
    asked = run("rm", built.out.strip(), "--docker-host", docker_engine.url)
    assert (asked.code, "--yes" in asked.err) == (2, True)
    assert run("rm", built.out.strip(), "--yes", "--docker-host", docker_engine.url).code == 0


def test_the_site_s_bundle_is_used_and_nowhere(docker_engine: TestEngine, tmp_path: Path) -> None:
    """The bundle makes pip work behind a proxy with a CA of its own, and no byte of it stays."""
    bundle = load_site().ca_certificates().decode() or pytest.skip("this machine has no CA bundle")
    (tmp_path / "bundle.pem").write_text(f"{bundle}\n{MARK}\n")
    (tmp_path / "site.yaml").write_text("ca_bundle: bundle.pem\n")
    built = tk(
        "image", "build", "cuda-12-pip", "--no-cache", "--site", "site.yaml", "--base", docker_engine.base,
        "--docker-host", docker_engine.url, cwd=tmp_path, timeout=1800,
    )  # fmt: skip
    assert built.code == 0, built.err[-3000:]
    engine = docker_engine.open()
    assert_nowhere(engine, built.out.strip(), MARK)
    logs = load_settings().cache_dir / "logs" / "build"
    assert all(MARK not in path.read_text() for path in logs.glob("*.log"))
    tk("image", "rm", built.out.strip(), "--yes", "--docker-host", docker_engine.url)


def assert_nowhere(engine: Engine, reference: str, mark: str) -> None:
    """The text is in no file of a layer, in no configuration and in no history."""
    with engine.guard("save the image"):
        assert mark not in str(engine.api.history(reference))
        stream = io.BytesIO(b"".join(engine.api.get_image(reference)))
    layers = 0
    with tarfile.open(fileobj=stream) as saved:
        for member in saved:
            content = saved.extractfile(member)
            data = content.read() if content else b""
            assert mark.encode() not in data, member.name
            layers += member.name.endswith("layer.tar") or member.size > 10**6
    assert layers, "what was searched has no layers"
