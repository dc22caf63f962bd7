"""`tk image lock --mirror-list`: everything that a vendor may take away, with what it must be."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import tk
from tests.support.recipes import plan
from toolchain.images.lock.file import Lock, LockedImage, write_lock
from toolchain.images.lock.mirror_list import Held, mirror_list
from toolchain.images.lock.pins import component_of, recipe_of
from toolchain.images.plan import Deb, Pins, Plan
from toolchain.images.planner import plan_image

NAME = "rocm-5.4.3+dpcpp-2022-12"
HIP = Deb("https://repo.radeon.com/rocm/apt/5.4.3/pool/hip-dev_5.4_amd64.deb", "1" * 64)
KEY = "https://repo.radeon.com/rocm/rocm.gpg.key"
LLVM = "https://github.com/intel/llvm"


def pins_of(one: Plan, **more: object) -> Pins:
    """Made-up pins for all that a plan leaves open."""
    return Pins(
        apt={package.partition("=")[0]: "1" for package in one.apt},
        pip={package.partition("==")[0]: (package.partition("==")[2] or "1", ()) for package in one.pip},
        git={tree.url: "2" * 40 for tree in one.git},
        downloads={file.url: "3" * 64 for file in one.downloads if not file.is_pinned},
        **more,  # type: ignore[arg-type]
    )


def section() -> LockedImage:
    bare = plan(NAME)
    needs = {component_of(need): pins_of(need, debs={"hip-dev": HIP}) for need in bare.needs}
    pins = pins_of(bare, base_digest=f"sha256:{'4' * 64}", debs={"hip-dev": HIP}, needs=needs)
    return LockedImage(recipe_of(bare), bare.base.reference, pins)


def test_everything_that_no_snapshot_keeps_once() -> None:
    pins = section().pins
    resolution = plan(NAME).resolution
    assert resolution is not None
    found = mirror_list(plan_image(resolution, lock=pins), pins)
    assert Held("image", "rocm/dev-ubuntu-20.04:5.4.3", f"sha256:{'4' * 64}") in found
    assert found.count(Held("deb", HIP.url, HIP.sha256)) == 1
    assert LLVM in {one.name for one in found if one.kind == "git"}
    assert Held("download", KEY, "CA8BB4727A47B4D09B4EE8969386B48A1A693C5C") in found
    assert all(one.digest != "unresolved" for one in found)


def test_a_stand_in_is_nobody_s() -> None:
    resolution = plan("cpu").resolution
    assert resolution is not None
    assert mirror_list(plan_image(resolution, base="my/debian"), Pins()) == ()


def test_the_command_reads_a_fresh_lock_and_asks_nobody(tmp_path: Path) -> None:
    write_lock(tmp_path / "tk.lock", Lock({NAME: section()}))
    words = ("image", "lock", NAME, "--mirror-list", "--docker-host", "unix:///nowhere.sock")
    told = tk(*words, "--json", cwd=tmp_path)
    assert told.code == 0, told.err
    assert {"kind": "deb", "name": HIP.url, "digest": HIP.sha256} in told.json["mirror"]
    shown = tk(*words, cwd=tmp_path, env={"COLUMNS": "400"})
    assert [line.split()[0] for line in shown.out.splitlines()[1:]] == sorted(
        one["kind"] for one in told.json["mirror"]
    )
