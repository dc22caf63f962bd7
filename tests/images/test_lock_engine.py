"""Lock, build, check, bundle, and build again without network: with a real engine, as users type it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.command import Result, tk
from tests.support.engine import TestEngine
from tests.support.json_schemas import bill_problem

pytestmark = pytest.mark.slow

NAME = "cpu"


@pytest.fixture
def run(docker_engine: TestEngine, tmp_path: Path) -> Callable[..., Result]:
    """`tk image ...` on the engine, in a project of this test; `base` is added for names."""

    def one(*arguments: object, project: str = "project") -> Result:
        folder = tmp_path / project
        folder.mkdir(exist_ok=True)
        env = {"XDG_DATA_HOME": str(tmp_path / "data"), "XDG_STATE_HOME": str(tmp_path / "state")}
        words = [*arguments, "--docker-host", docker_engine.url]
        if NAME in arguments:
            words += ["--base", docker_engine.base]
        return tk("image", *words, cwd=folder, env=env, timeout=1200)

    return one


def ok(done: Result) -> Result:
    assert done.code == 0, done.err[-3000:]
    return done


def test_from_a_lock_to_a_build_without_network(
    run: Callable[..., Result], docker_engine: TestEngine, registry: str, tmp_path: Path
) -> None:
    lock = tmp_path / "project" / "tk.lock"
    missing = run("build", NAME, "--locked")
    assert (missing.code, "no section for cpu" in missing.err) == (3, True)

    tried = ok(run("lock", NAME, "--dry-run", "--json")).json
    assert (tried["written"], lock.exists()) == (False, False)
    found = ok(run("lock", NAME, "--json")).json
    assert len(tried["changes"]) == len(found["changes"])
    pins = {one["name"]: one["after"] for one in found["changes"] if one["what"] == "apt"}
    assert {"g++", "libc6-dev", "python3-minimal"} <= pins.keys(), (
        "packages that are pulled in are locked, too"
    )
    text = lock.read_text()
    ok(run("lock", NAME))
    ok(run("lock", NAME, "--update"))
    assert lock.read_text() == text

    reference = ok(run("build", NAME, "--locked")).out.strip()
    report = ok(run("check", NAME, "--locked", "--json")).json
    assert (report["locked"], report["differences"], report["passed"]) == (True, [], True)
    document = ok(run("sbom", NAME)).out
    assert bill_problem(document) == ""
    assert document.strip() == Path(report["sbom"]).read_text().strip()
    versions = {one["name"]: one.get("version") for one in json.loads(document)["components"]}
    assert {name: versions.get(name) for name in pins} == pins

    stale_and_vanished(run, lock, text)
    published(run, lock, reference, registry)
    bundled(run, docker_engine, tmp_path, reference)


def stale_and_vanished(run: Callable[..., Result], lock: Path, text: str) -> None:
    """Another recipe makes the lock stale; a version that does not exist makes the build fail."""
    lock.write_text(re.sub(r'recipe = "\w{64}"', f'recipe = "{"0" * 64}"', text))
    stale = run("build", NAME, "--locked", "--dry-run")
    assert (stale.code, "recipes of cpu have changed" in stale.err) == (3, True)
    ok(run("build", NAME, "--frozen", "--dry-run"))
    warned = ok(run("build", NAME, "--dry-run"))
    assert "tk.lock does not count" in warned.err

    pulled_in = next(line for line in text.splitlines() if line.startswith("libasan"))
    lock.write_text(text.replace(pulled_in, f'{pulled_in.split(" = ")[0]} = "99.0-1"'))
    vanished = run("build", NAME, "--frozen")
    assert vanished.code == 5
    assert "not installable" in vanished.err or "unmet dependencies" in vanished.err
    lock.write_text(text)


def published(run: Callable[..., Result], lock: Path, reference: str, registry: str) -> None:
    """Pushed once; from then on everybody who has the lock gets this image, by its digest."""
    before = lock.read_text()
    identity = ok(run("build", NAME, "--json")).json["id"]
    refused = run("pull", NAME, "--frozen")
    assert (refused.code, "the lock names no image of cpu" in refused.err) == (3, True), refused.err
    pushed = ok(run("push", NAME, "--registry", registry, "--private", "--locked", "--json")).json
    assert pushed["in_lock"]
    digest = f'digest = "{pushed["digest"]}"'
    named = lock.read_text()
    assert digest in named
    assert named.startswith(before.rstrip("\n"))

    for words in (("build", NAME, "--locked"), ("build", NAME, "--frozen"), ("pull", NAME, "--frozen")):
        ok(run("rm", reference, "--yes"))
        taken = ok(run(*words, "--json")).json
        assert (taken["reference"], taken["id"]) == (reference, identity)
    ok(run("rm", reference, "--yes"))
    assert ok(run("build", NAME, "--dry-run", "--json")).json["images"][0]["state"] == "to be pulled"

    other = re.sub(r'(\nplan = )"\w{64}"', rf'\1"{"0" * 64}"', named)
    lock.write_text(other)
    stale = run("build", NAME, "--locked", "--dry-run")
    assert (stale.code, "the image that the lock names for cpu is out of date" in stale.err) == (3, True)
    warned = ok(run("build", NAME, "--dry-run"))
    assert "the image in tk.lock does not count" in warned.err
    assert "to be built" in warned.out
    ok(run("lock", NAME))
    assert lock.read_text() == before
    image = f"{pushed['reference']}@{pushed['digest']}"
    assert ok(run("lock", NAME, "--image", image, "--json")).json["image"]["digest"] == pushed["digest"]
    assert lock.read_text() == named
    wrong = run("lock", NAME, "--image", f"{pushed['reference']}@sha256:{'0' * 64}")
    assert (wrong.code, "the registry has no" in wrong.err) == (4, True)
    assert lock.read_text() == named
    lock.write_text(before)  # what follows is about building


def bundled(run: Callable[..., Result], docker_engine: TestEngine, tmp_path: Path, reference: str) -> None:
    """The bundle alone is enough: caches emptied, image gone, another project, no network."""
    bundle = tmp_path / "cpu.tar"
    exported = ok(run("bundle", "export", NAME, "-o", bundle, "--json")).json
    assert exported["bytes"] == bundle.stat().st_size

    ok(run("rm", reference, "--yes"))
    engine = docker_engine.open()
    if docker_engine.private:
        with engine.guard("empty the build caches"):
            engine.api.prune_builds(all=True)
        nothing = run("build", NAME, "--locked", "--network", "none")
        assert nothing.code == 5, "without the bundle there is nothing to build from"

    imported = ok(run("bundle", "import", bundle, project="other"))
    assert imported.out.strip() == NAME
    assert (tmp_path / "other" / "tk.lock").read_text() == (tmp_path / "project" / "tk.lock").read_text()
    again = ok(run("build", NAME, "--locked", "--network", "none", project="other"))
    assert again.out.strip() == reference
    ok(run("check", NAME, "--locked", project="other"))
    ok(run("rm", reference, "--yes"))
