"""The steps of site.sh that decide whom a build trusts, run for real on keys and git trees made here."""

from __future__ import annotations

import functools
import http.server
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from toolchain.data import data_directory

Step = Callable[..., subprocess.CompletedProcess[str]]
SCRIPT = data_directory("dockerfiles") / "tk" / "site.sh"

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("gpg", "git"))), reason="needs gpg and git, as the steps do"
)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a web server on this machine, and the folder that it serves."""
    folder = tmp_path_factory.mktemp("web")

    class Handler(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *_args: object) -> None:
            """Nothing."""

    handler = functools.partial(Handler, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}", folder
        server.shutdown()


class Keyring:
    """Keys that were made here, in a folder of gpg's own."""

    def __init__(self, home: Path) -> None:
        home.mkdir(mode=0o700)
        self.home = home

    def gpg(self, *arguments: str) -> bytes:
        options = ("--batch", "--quiet", "--pinentry-mode", "loopback", "--passphrase", "")
        argv = ["gpg", "--homedir", str(self.home), *options, *arguments]
        return subprocess.run(argv, capture_output=True, check=True).stdout

    def make(self, name: str) -> str:
        """A new key for signing; its fingerprint."""
        self.gpg("--quick-generate-key", name, "ed25519", "sign", "never")
        return self.fingerprints(name)[0]

    def fingerprints(self, name: str = "") -> list[str]:
        listed = self.gpg("--with-colons", "--list-keys", *([name] if name else [])).decode()
        return [line.split(":")[9] for line in listed.splitlines() if line.startswith("fpr:")]


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keyring:
    return Keyring(tmp_path_factory.mktemp("keys") / "gnupg")


@pytest.fixture
def step(tmp_path: Path) -> Step:
    """Runs a step with caches of this test."""
    script = tmp_path / "site.sh"
    text = SCRIPT.read_text()
    for name, folder in (("caches", "/var/cache"), ("trees", "/src/gitconfig")):
        text = text.replace(f"{name}={folder}\n", f"{name}={tmp_path}/{name}\n")
    script.write_text(text)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["sh", str(script), *words], capture_output=True, text=True, check=False)

    return run


def test_one_key_is_taken_from_a_file_of_several(
    step: Step, web: tuple[str, Path], keys: Keyring, tmp_path: Path
) -> None:
    wanted, other = keys.make("wanted"), keys.make("other")
    (web[1] / "both.asc").write_bytes(keys.gpg("--armor", "--export", "wanted", "other"))
    done = step("key", f"{web[0]}/both.asc", wanted, str(tmp_path / "etc" / "one.asc"))
    assert done.returncode == 0, done.stderr
    shown = Keyring(tmp_path / "gnupg").gpg(
        "--with-colons", "--import-options", "show-only", "--import", str(tmp_path / "etc" / "one.asc")
    )
    assert wanted in shown.decode()
    assert other not in shown.decode()


def test_another_key_is_refused(step: Step, web: tuple[str, Path], keys: Keyring, tmp_path: Path) -> None:
    found = keys.make("stranger")
    (web[1] / "stranger.asc").write_bytes(keys.gpg("--armor", "--export", "stranger"))
    done = step("key", f"{web[0]}/stranger.asc", "A" * 40, str(tmp_path / "one.asc"))
    assert done.returncode == 1
    assert f"stranger.asc has no key with the fingerprint {'A' * 40}" in done.stderr
    assert found in done.stderr
    assert not (tmp_path / "one.asc").exists()


def test_a_subkey_does_not_stand_for_its_primary_key(
    step: Step, web: tuple[str, Path], keys: Keyring, tmp_path: Path
) -> None:
    """Whoever makes a key can hang a known one below it; what it signs would be the stranger's."""
    primary = keys.make("with subkey")
    keys.gpg("--quick-add-key", primary, "cv25519", "encr", "never")
    subkey = keys.fingerprints("with subkey")[1]
    (web[1] / "sub.asc").write_bytes(keys.gpg("--armor", "--export", primary))
    done = step("key", f"{web[0]}/sub.asc", subkey, str(tmp_path / "one.asc"))
    assert done.returncode == 1
    assert "has no key with the fingerprint" in done.stderr


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A git repository with an annotated tag `2022-12`, and the commit that it marks."""
    folder = tmp_path_factory.mktemp("repository")

    def git(*words: str) -> str:
        argv = ["git", "-C", str(folder), "-c", "user.name=n", "-c", "user.email=n@invalid", *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout.strip()

    git("init", "--quiet", "--initial-branch", "main")
    (folder / "file").write_text("text")
    git("add", ".")
    git("commit", "--quiet", "--message", "one")
    git("tag", "--annotate", "--message", "two", "2022-12")
    return f"file://{folder}", git("rev-parse", "HEAD")


@pytest.mark.parametrize("digits", [8, 39, 40])
def test_a_commit_may_be_named_by_its_beginning(
    digits: int, step: Step, repository: tuple[str, str], tmp_path: Path
) -> None:
    url, commit = repository
    done = step("git", url, "2022-12", commit[:digits], str(tmp_path / "tree"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "tree" / "file").read_text() == "text"


def test_a_tag_that_was_moved_is_refused(step: Step, repository: tuple[str, str], tmp_path: Path) -> None:
    url, commit = repository
    other = "0" * 8 if not commit.startswith("0" * 8) else "1" * 8
    done = step("git", url, "2022-12", other, str(tmp_path / "tree"))
    assert done.returncode == 1
    assert f"2022-12 is at commit {commit}, expected {other}..." in done.stderr
    assert not (tmp_path / "tree").exists()
