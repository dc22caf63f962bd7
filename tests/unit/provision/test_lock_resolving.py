"""Resolving: the script that asks apt and pip, what their answers mean, and where sources are asked."""

from __future__ import annotations

import dataclasses
import hashlib
import http.server
import re
import subprocess
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compiler import BadInputError, BuildError, HostError
from toolchain.images.plan import BaseImage, Deb, Download, GitTree, Pins, Plan
from toolchain.images.planner import plan_image
from toolchain.provision import locking, origins, resolving
from toolchain.provision.locking import Change, changes, lock_plan
from toolchain.provision.resolving import Packages, parse_apt, parse_pip, parse_uris, resolving_script
from toolchain.recipes.additions import NOTHING
from toolchain.recipes.catalog import load_catalog
from toolchain.recipes.resolve import resolve
from toolchain.site import Mirror, SiteConfig
from toolchain.web import UnreachableError

SIMULATED = """\
Reading package lists...
NOTE: This is only a simulation!
Inst libc6 [2.36-9] (2.36-10 Debian:12.1/stable [amd64]) []
Inst gcc-12-base (12.2.0-14 Debian:12.11/stable [amd64])
Inst libc6:i386 (2.36-10 Debian:12.1/stable [i386])
Inst g++ (4:12.2.0-3 Debian:12.11/stable, Local:1 [amd64]) [x:amd64 ]
Conf gcc-12-base (12.2.0-14 Debian:12.11/stable [amd64])
"""


def test_apts_answer() -> None:
    assert parse_apt(SIMULATED, "tar\t1.34\nlibc6\t2.36-9\nbroken line\n\t\n") == {
        "g++": "4:12.2.0-3",
        "gcc-12-base": "12.2.0-14",
        "libc6": "2.36-10",
        "libc6:i386": "2.36-10",
        "tar": "1.34",
    }


URIS = f"""\
Need to get 83.9 kB of archives.
'http://m/apt/ftp.debian.org/debian/pool/hello_2.10-3_amd64.deb' hello_2.10-3_amd64.deb 5 SHA256:{"a" * 64}
'http://m/apt/repo.radeon.com/rocm/apt/5.4.3/pool/hip-dev_5.4%2b1_amd64.deb' hip-dev_5.4+1_amd64.deb 5 \
SHA256:{"b" * 64}
'http://m/apt/ftp.debian.org/debian-else/x_1_i386.deb' x_1_i386.deb 5 SHA256:{"c" * 64}
'http://m/apt/vendor.example.com/y_1_all.deb' y_1_all.deb 5 MD5Sum:{"d" * 32}
'file:/fetched/packages/z.deb' z_1_all.deb 5 SHA256:{"e" * 64}
'http://m/apt/vendor.example.com/not-locked_1_all.deb' not-locked_1_all.deb 5 SHA256:{"f" * 64}
"""


def test_files_that_no_snapshot_keeps() -> None:
    site = SiteConfig(apt_mirrors=(Mirror("https://", "http://m/apt/"),))
    system = load_catalog().systems["debian-12"].row
    apt = {"hello": "2.10-3", "hip-dev": "5.4+1", "x:i386": "1", "y": "1", "z": "1"}
    assert parse_uris(URIS, apt, system.archives, site.original_apt_url) == {
        "hip-dev": Deb("https://repo.radeon.com/rocm/apt/5.4.3/pool/hip-dev_5.4%2b1_amd64.deb", "b" * 64),
        "x:i386": Deb("https://ftp.debian.org/debian-else/x_1_i386.deb", "c" * 64),
    }


def test_pips_answer() -> None:
    one = {
        "metadata": {"name": "ML_Dtypes", "version": "0.5.0"},
        "download_info": {"url": "https://x/y.whl", "archive_info": {"hashes": {"sha256": "a" * 64}}},
    }
    silent = {**one, "download_info": {"url": "https://x/y.whl#egg", "archive_info": {}}}
    assert parse_pip({"install": [one]}, _nobody) == {"ml-dtypes": ("0.5.0", ("a" * 64,))}
    assert parse_pip({"install": [silent]}, {"https://x/y.whl": "b" * 64}.__getitem__) == {
        "ml-dtypes": ("0.5.0", ("b" * 64,))
    }
    assert parse_pip({}, _nobody) == {}
    with pytest.raises(HostError, match="does not come as a file"):
        parse_pip({"install": [{**one, "download_info": {"url": "git+https://x", "vcs_info": {}}}]}, _nobody)


def _nobody(url: str) -> str:
    raise AssertionError(f"{url} is asked for")


def script(name: str) -> list[str]:
    return resolving_script(plan_image(resolve(name, load_catalog()))).splitlines()


def test_the_script_of_an_image_with_python_packages() -> None:
    lines = script("cpu-sycl")
    simulate = next(i for i, line in enumerate(lines) if "--simulate" in line)
    install = next(i for i, line in enumerate(lines) if "apt install" in line and "--simulate" not in line)
    pip = next(i for i, line in enumerate(lines) if "--dry-run" in line)
    assert simulate < install < pip == len(lines) - 1
    assert "dpcpp-cpp-rt" in lines[pip]
    assert "uninstall" not in lines[pip]


def test_the_script_of_an_image_with_sources_of_its_own() -> None:
    plan = plan_image(resolve("rocm-5.4.3", load_catalog()))
    lines = resolving_script(plan).splitlines()
    reader, update = (i for i, line in enumerate(lines) if line.endswith("apt update"))
    key = next(i for i, line in enumerate(lines) if "rocm.gpg.key" in line)
    sources = next(i for i, line in enumerate(lines) if "context/apt/rocm.sources" in line)
    removed = next(
        i for i, line in enumerate(lines) if line.startswith("rm -f /etc/apt/sources.list.d/rocm.list")
    )
    assert removed < reader < key < update
    assert sources < update
    assert lines[reader + 1].endswith("apt install gpg")
    assert "site.sh key" in lines[key]
    assert "CA8BB4727A47B4D09B4EE8969386B48A1A693C5C" in lines[key]
    assert not any("cmake" in line or "configure.py" in line for line in lines)


@pytest.mark.parametrize(
    "name", ["cpu", "cpu-sycl", "rocm-5.2-debian", "cuda-12-pip", "rocm-5.4.3+dpcpp-2022-12"]
)
def test_scripts_are_shell(name: str, tmp_path: Path) -> None:
    path = tmp_path / "script.sh"
    path.write_text("\n".join(script(name)))
    assert subprocess.run(["sh", "-n", str(path)], check=False).returncode == 0


def test_changes_of_a_lock() -> None:
    old = Pins(apt={"gcc": "11", "old": "1"}, needs={"dpcpp": Pins(git={"u": "a" * 40})})
    new = Pins(apt={"gcc": "12"}, pip={"numpy": ("2", ())}, needs={"dpcpp": Pins(git={"u": "b" * 40})})
    assert changes(old, new) == (
        Change("apt", "gcc", "11", "12"),
        Change("apt", "old", "1", ""),
        Change("dpcpp: git", "u", "a" * 40, "b" * 40),
        Change("pip", "numpy", "", "2"),
    )
    assert changes(new, new) == ()


# -- where things come from --


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """A web server on this machine with the files of `tmp_path / "web"`."""
    folder = tmp_path / "web"
    folder.mkdir()
    (folder / "key.gpg").write_bytes(b"key")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args, directory=str(folder))

        def log_message(self, *_args: Any) -> None:
            pass

        def do_GET(self) -> None:
            if self.path != "/half":
                super().do_GET()
                return
            self.send_response(200)
            self.send_header("Content-Length", "14")
            self.end_headers()
            self.wfile.write(b"7 bytes")

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as one:
        thread = threading.Thread(target=one.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{one.server_port}"
        one.shutdown()
        thread.join()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A git repository with a branch `main`, a light tag `v1` and an annotated tag `v2`."""
    path = tmp_path / "repository"

    def git(*arguments: str) -> str:
        argv = ["git", "-C", str(path), "-c", "user.name=x", "-c", "user.email=x@example.com", *arguments]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    path.mkdir()
    git("init", "-q", "-b", "main")
    git("commit", "-q", "--allow-empty", "-m", "one")
    git("tag", "v1")
    git("tag", "-a", "-m", "two", "v2")
    return path


def test_downloads_go_through_the_mirror(server: str, tmp_path: Path) -> None:
    site = SiteConfig(url_mirrors=(Mirror("https://example.com/", f"{server}/"),))
    assert origins.download("https://example.com/key.gpg", site) == hashlib.sha256(b"key").hexdigest()
    target = tmp_path / "kept"
    origins.download("https://example.com/key.gpg", site, target)
    assert target.read_bytes() == b"key"


def test_downloads_that_fail(server: str, tmp_path: Path) -> None:
    with pytest.raises(HostError) as caught:
        origins.download(f"{server}/none", SiteConfig(), tmp_path / "kept")
    assert "404" in caught.value.why
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(("path", "is_away"), [("none", False), ("half", True), ("", True)])
def test_what_keeps_a_download_away(path: str, is_away: bool, server: str, tmp_path: Path) -> None:
    """A server that says no is there; one that breaks off, or is not there, is not; no file is to blame."""
    url = f"{server}/{path}" if path else "http://127.0.0.1:9/key.gpg"
    with pytest.raises(HostError, match="cannot fetch") as caught:
        origins.download(url, SiteConfig(), tmp_path / "kept")
    assert isinstance(caught.value, UnreachableError) is is_away
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize(
    ("url", "is_away"), [("http://127.0.0.1:9/x", True), ("http://no-such-host.invalid/x", True), ("", False)]
)
def test_a_repository_that_cannot_be_reached(url: str, is_away: bool, server: str) -> None:
    with pytest.raises(HostError, match="cannot ask") as caught:
        origins.resolve_commit(GitTree(url or f"{server}/none", "v1", "unresolved", "/s"), SiteConfig())
    assert isinstance(caught.value, UnreachableError) is is_away


@pytest.mark.parametrize(
    "line",
    [
        "W: Failed to fetch http://ftp.debian.org/x  Temporary failure resolving 'ftp.debian.org'",
        "W: Failed to fetch http://m/InRelease  Could not connect to m:80 (10.0.0.1), connection timed out",
        "WARNING: Retrying: Failed to establish a new connection: [Errno 101] Network is unreachable",
    ],
)
def test_packages_without_a_network_are_no_matter_of_versions(line: str) -> None:
    gone = "E: Unable to locate package gcc"
    away = resolving._unsolved(PLAN, f"{line}\n{gone}\n" + "E: more\n" * 20, SiteConfig())
    assert isinstance(away, UnreachableError)
    assert away.why == line
    assert isinstance(resolving._unsolved(PLAN, gone, SiteConfig()), BuildError)


def test_known_causes_are_told_while_locking_too() -> None:
    log = "W: GPG error: https://m stub InRelease: EXPKEYSIG 9386B48A1A693C5C AMD\nE: no\n"
    assert "known cause apt-key-expired" in resolving._unsolved(PLAN, log, SiteConfig()).hint
    assert "may have vanished" in resolving._unsolved(PLAN, "E: something else", SiteConfig()).hint


def test_commits_of_tags_and_branches(repository: Path) -> None:
    site = SiteConfig(git_mirrors=(Mirror("https://example.com/x", f"file://{repository}"),))
    head = subprocess.run(
        ["git", "-C", str(repository), "rev-parse", "main"], capture_output=True, text=True, check=True
    ).stdout.strip()
    for ref in ("main", "v1", "v2"):
        assert origins.resolve_commit(GitTree("https://example.com/x", ref, "unresolved", "/s"), site) == head
    with pytest.raises(BuildError, match="no tag or branch v3"):
        origins.resolve_commit(GitTree("https://example.com/x", "v3", "unresolved", "/s"), site)


def test_a_repository_that_is_not_there(tmp_path: Path) -> None:
    site = SiteConfig(git_mirrors=(Mirror("https://example.com/", f"file://{tmp_path}/none/"),))
    with pytest.raises(HostError, match="cannot ask"):
        origins.resolve_commit(GitTree("https://example.com/x", "v1", "unresolved", "/s"), site)


# -- the whole --

URL, KEY = "https://github.com/intel/llvm", "https://repo.radeon.com/k"
NEED = Plan(
    name="dpcpp on rocm", repository="tk/dpcpp", tag="1", base=BaseImage("rocm:1"), stages=(),
    git=(GitTree(URL, "2022-12", "unresolved", "/s"),),
)  # fmt: skip
PLAN = Plan(
    name="rocm+dpcpp", repository="tk/rocm", tag="1", base=BaseImage("rocm:1"), stages=(), needs=(NEED,),
    apt=("gcc",),
    downloads=(Download(KEY, "unresolved", "/k", is_key=True),),
    resolution=SimpleNamespace(
        recipe_hash="e" * 64, environment=None, additions=NOTHING, fallbacks=(),
        system=SimpleNamespace(archives=()),
    ),  # type: ignore[arg-type]
)  # fmt: skip


class Engine:
    """An engine whose registry knows `rocm:1`."""

    kind = "docker"

    def __init__(self, digest: str = "sha256:" + "d" * 64) -> None:
        self.api = SimpleNamespace(
            inspect_distribution=lambda _ref: {"Descriptor": {"digest": digest}}, pull=self.pull
        )
        self.pulled: list[str] = []
        self.endpoint = "x"

    def pull(self, repository: str, *, tag: str, **_how: Any) -> Iterator[Any]:
        self.pulled.append(f"{repository} {tag}")
        return iter(())

    def image(self, _reference: str) -> None:
        return None

    def guard(self, _doing: str) -> Any:
        import contextlib

        return contextlib.nullcontext()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was asked of the world; every answer is made up from the question."""
    found: list[str] = []

    def answer(what: str, value: Any) -> Any:
        found.append(what)
        return value

    monkeypatch.setattr(origins, "download", lambda url, _site: answer(url, "b" * 64))
    monkeypatch.setattr(origins, "resolve_commit", lambda tree, _site: answer(tree.url, "c" * 40))
    monkeypatch.setattr(
        locking,
        "resolve_packages",
        lambda _engine, plan, _site, **_keep: answer(
            plan.name, Packages({"gcc": "12"} if plan is not NEED else {}, {})
        ),
    )
    return found


def trusting(_parts: Sequence[str]) -> bool:
    return True


def test_everything_open_is_asked_once(asked: list[str]) -> None:
    engine: Any = Engine()
    section = lock_plan(engine, PLAN, SiteConfig(), lambda _pins: PLAN, trust=trusting)
    assert asked == [URL, KEY, "rocm+dpcpp", "dpcpp on rocm"]
    assert section.pins == Pins(
        base_digest="sha256:" + "d" * 64, apt={"gcc": "12"}, downloads={KEY: "b" * 64}, first_use=(KEY,),
        needs={"dpcpp": Pins(git={URL: "c" * 40}, first_use=(URL,))},
    )  # fmt: skip
    assert (section.recipe, section.base, section.stand_in) == ("e" * 64, "rocm:1", False)


def test_what_is_kept_is_not_asked_again(asked: list[str]) -> None:
    engine: Any = Engine("sha256:" + "0" * 64)
    old = Pins(
        base_digest="sha256:" + "1" * 64,
        downloads={KEY: "2" * 64},
        needs={"dpcpp": Pins(git={URL: "3" * 40})},
    )
    pins = lock_plan(engine, PLAN, SiteConfig(), lambda _pins: PLAN, keep=old).pins
    assert asked == ["rocm+dpcpp", "dpcpp on rocm"]
    assert (pins.base_digest, pins.downloads) == (old.base_digest, old.downloads)
    assert pins.needs["dpcpp"].git == {URL: "3" * 40}


def test_the_snapshot_stays_while_versions_do(asked: list[str]) -> None:
    engine: Any = Engine()
    archived = SimpleNamespace(
        recipe_hash="e" * 64,
        environment=None,
        additions=NOTHING,
        fallbacks=(),
        system=load_catalog().systems["debian-12"].row,
    )
    plan = dataclasses.replace(PLAN, resolution=archived)  # type: ignore[arg-type]

    def locked(before: Pins | None) -> Pins:
        made = lock_plan(engine, plan, SiteConfig(), lambda _pins: plan, before=before, trust=trusting)
        return made.pins

    new = locked(None)
    assert re.fullmatch(r"20\d{6}T\d{6}Z", new.snapshot)
    assert new.needs["dpcpp"].snapshot == "", "it has no packages"
    assert locked(Pins(apt={"gcc": "12"}, snapshot="20260101T000000Z")).snapshot == "20260101T000000Z"
    assert locked(Pins(apt={"gcc": "11"}, snapshot="20260101T000000Z")).snapshot >= new.snapshot


def test_a_stand_in_has_no_digest(asked: list[str]) -> None:
    engine: Any = Engine()
    local = dataclasses.replace(PLAN, base=BaseImage("local:1", stand_in=True))
    section = lock_plan(engine, local, SiteConfig(), lambda _pins: local, trust=trusting)
    assert (section.pins.base_digest, section.stand_in, section.base) == ("", True, "local:1")
    assert engine.pulled == []


def test_a_registry_that_says_nothing(asked: list[str]) -> None:
    engine: Any = Engine("")
    with pytest.raises(HostError, match="no registry says the digest of rocm:1"):
        lock_plan(engine, PLAN, SiteConfig(), lambda _pins: PLAN, trust=trusting)


def test_what_nobody_vouches_for_is_told_as_one_list(asked: list[str]) -> None:
    """A key and a commit without a source: nothing is asked of the world before somebody trusts both."""
    told: list[Sequence[str]] = []

    def refuse(parts: Sequence[str]) -> bool:
        told.append(parts)
        return False

    engine: Any = Engine()
    with pytest.raises(BadInputError, match="vouches for") as caught:
        lock_plan(engine, PLAN, SiteConfig(), lambda _pins: PLAN, trust=refuse)
    assert told == [(f"the keys in {KEY}", f"the commit of 2022-12 in {URL}")]
    assert KEY in caught.value.why
    assert URL in caught.value.why
    assert "--trust-on-first-use" in caught.value.hint
    assert asked == []


@pytest.mark.parametrize(("begins", "trusted"), [("cccccccc", False), ("dddddddd", True)])
def test_a_commit_that_is_known_by_its_beginning(begins: str, trusted: bool, asked: list[str]) -> None:
    """The tag's commit must begin so; another one is taken only from who trusts it, and noted."""
    tree = GitTree(URL, "2022-12", begins, "/s")
    plan = dataclasses.replace(PLAN, downloads=(), needs=(dataclasses.replace(NEED, git=(tree,)),))
    engine: Any = Engine()
    if trusted:
        with pytest.raises(BadInputError, match="vouches for") as caught:
            lock_plan(engine, plan, SiteConfig(), lambda _pins: plan)
        assert f"is at {'c' * 40}, the recipe says {begins}" in caught.value.why
    pins = lock_plan(engine, plan, SiteConfig(), lambda _pins: plan, trust=lambda _parts: trusted).pins
    own = pins.needs["dpcpp"]
    assert (own.git, own.first_use) == ({URL: "c" * 40}, (URL,) if trusted else ())


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_base_that_was_pulled_before_tells_its_digest(kind: str, asked: list[str]) -> None:
    """Podman's socket cannot ask a registry; and Docker's may be out of reach."""

    class Knowing(Engine):
        def image(self, _reference: str) -> Any:
            return {"RepoDigests": ["other@sha256:1", f"docker.io/library/rocm@sha256:{'5' * 64}"]}

        def guard(self, doing: str) -> Any:
            if doing.startswith("ask"):
                raise HostError("out of reach")
            return super().guard(doing)

    engine: Any = Knowing()
    engine.kind = kind
    section = lock_plan(engine, PLAN, SiteConfig(), lambda _pins: PLAN, trust=trusting)
    assert section.pins.base_digest == "sha256:" + "5" * 64
