"""Git in a build: the site's mirrors and the trees checked out before reach every git that a step starts."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from toolchain.data import data_directory

HOST = "https://there.invalid"


@dataclass(frozen=True, slots=True)
class Build:
    """A folder in place of a build's root, with site.sh in it."""

    root: Path

    def step(self, *words: object) -> subprocess.CompletedProcess[str]:
        argv = ["sh", str(self.root / "site.sh"), *map(str, words)]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.root), "GIT_CONFIG_NOSYSTEM": "1"}
        env["GIT_ALLOW_PROTOCOL"] = "file"  # a mirror by https needs no leave
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=env)

    def clone(self, url: str, ref: str) -> subprocess.CompletedProcess[str]:
        """What CMake's FetchContent and ExternalProject do."""
        target = self.root / "cloned"
        script = 'git clone --quiet --no-checkout "$1" "$2" && git -C "$2" checkout --quiet "$3" --'
        return self.step("run", "sh", "-c", script, "sh", url, target, ref)

    def mirrored(self, prefix: str) -> None:
        """The site says that what is below HOST lies in the folder `up`."""
        (self.root / "secrets" / "tk-site").write_text(f"git_mirror={prefix} file://{self.root}/up/\n")


@pytest.fixture
def build(tmp_path: Path) -> Build:
    text = (data_directory("dockerfiles") / "tk" / "site.sh").read_text()
    for before, after in (
        ("secrets=/run/secrets", f"secrets={tmp_path}/secrets"),
        ("caches=/var/cache", f"caches={tmp_path}/caches"),
        ("trees=/src/", f"trees={tmp_path}/src/"),
    ):
        assert text.count(f"\n{before}") == 1
        text = text.replace(before, after)
    (tmp_path / "site.sh").write_text(text)
    for name in ("secrets", "caches", "src", "up"):
        (tmp_path / name).mkdir()
    build = Build(tmp_path)
    build.mirrored(f"{HOST}/")
    return build


def commit(folder: Path, text: str) -> str:
    """A repository with one more commit, which the tag v1 names then."""
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text(text)
    git(folder, "init", "--quiet")
    git(folder, "add", ".")
    return committed(folder, text)


def committed(folder: Path, text: str) -> str:
    git(folder, "commit", "--quiet", "--message", text)
    git(folder, "tag", "--force", "v1")
    return git(folder, "rev-parse", "HEAD")


def git(folder: Path, *words: object) -> str:
    argv = ["git", "-C", folder, "-c", "user.name=n", "-c", "user.email=n@invalid", *words]
    return subprocess.run(list(map(str, argv)), check=True, capture_output=True, text=True).stdout.strip()


def test_what_a_step_clones_comes_through_the_sites_mirror(build: Build) -> None:
    head = commit(build.root / "up" / "lib", "one")
    done = build.clone(f"{HOST}/lib", head)
    assert done.returncode == 0, done.stderr
    assert (build.root / "cloned" / "file").read_text() == "one"


@pytest.mark.parametrize("suffix", ["", ".git"])
@pytest.mark.parametrize("by_tag", [True, False])
def test_what_was_checked_out_is_cloned_from_there(build: Build, suffix: str, by_tag: bool) -> None:
    up = build.root / "up" / "lib"
    head = commit(up, "one")
    done = build.step("git", f"{HOST}/lib", "v1", head, build.root / "src" / "lib")
    assert done.returncode == 0, done.stderr
    up.rename(up.with_name("gone"))
    done = build.clone(f"{HOST}/lib{suffix}", "v1" if by_tag else head)
    assert done.returncode == 0, done.stderr
    assert (build.root / "cloned" / "file").read_text() == "one"


def test_another_commit_than_the_locked_one_fails(build: Build) -> None:
    up = build.root / "up" / "lib"
    first = commit(up, "one")
    second = commit(up, "two")
    assert build.step("git", f"{HOST}/lib", "v1", second, build.root / "src" / "lib").returncode == 0
    done = build.clone(f"{HOST}/lib", first)
    assert done.returncode != 0
    assert first in done.stderr


def test_submodules_come_through_the_mirror_too(build: Build) -> None:
    part = commit(build.root / "up" / "part", "part")
    whole = build.root / "up" / "whole"
    commit(whole, "whole")
    (whole / ".gitmodules").write_text(f'[submodule "part"]\n\tpath = part\n\turl = {HOST}/part\n')
    git(whole, "add", ".gitmodules")
    git(whole, "update-index", "--add", "--cacheinfo", f"160000,{part},part")
    head = committed(whole, "with a part")
    done = build.step("git", f"{HOST}/whole", "v1", head, build.root / "src" / "whole")
    assert done.returncode == 0, done.stderr
    assert (build.root / "src" / "whole" / "part" / "file").read_text() == "part"


def test_nothing_of_the_site_stays(build: Build) -> None:
    head = commit(build.root / "up" / "lib", "one")
    assert build.step("git", f"{HOST}/lib", "v1", head, build.root / "src" / "lib").returncode == 0
    left = (build.root / "src" / "gitconfig").read_text()
    assert "file://" not in left
    assert left.count(str(build.root / "src" / "lib")) == 1
    assert not (build.root / ".gitconfig").exists()
