"""Fresh, stale, missing: what a plan gets from a lock, and what --locked and --frozen make of it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from compiler import BadInputError, UsageError
from toolchain.images.lock.file import Lock, LockedBuild, LockedImage, read_lock, write_lock
from toolchain.images.lock.pins import consult, plan_locked, publish, record_build
from toolchain.images.named import plan_named
from toolchain.images.plan import BaseImage, Download, GitTree, Pins, Plan
from toolchain.images.selection import LockMode, Selection, lock_mode
from toolchain.recipes.additions import NOTHING

RECIPE = "a" * 64
DIGEST = "sha256:" + "d" * 64
LLVM = "https://github.com/intel/llvm"
KEY = "https://repo.radeon.com/rocm/rocm.gpg.key"


def resolved(section: str = "rocm-5.4.3+dpcpp-2022-12") -> Any:
    return SimpleNamespace(recipe_hash=RECIPE, section=section, additions=NOTHING)


def plan(**changes: Any) -> Plan:
    need = Plan(
        name="dpcpp-2022-12 on rocm-5.4.3", repository="tk/dpcpp", tag="2022-12",
        base=BaseImage("rocm:5.4.3"),
        stages=(), apt=("ninja-build",), git=(GitTree(LLVM, "2022-12", "unresolved", "/src"),),
    )  # fmt: skip
    whole = Plan(
        name="rocm-5.4.3+dpcpp-2022-12", repository="tk/rocm", tag="5.4.3", base=BaseImage("rocm:5.4.3"),
        stages=(),
        labels=(("tk.recipe", RECIPE),),
        apt=("gcc", "rocm-dev=5.4.3"), pip=("numpy>=1.26", "ml_dtypes"),
        downloads=(Download(KEY, "unresolved", "/k"),), needs=(need,),
        resolution=resolved(),
    )  # fmt: skip
    return dataclasses.replace(whole, **changes)


PINS = Pins(
    base_digest=DIGEST,
    apt={"gcc": "12", "rocm-dev": "5.4.3"},
    pip={"numpy": ("1.26.4", ()), "ml-dtypes": ("0.5", ())},
    downloads={KEY: "b" * 64},
    needs={"dpcpp": Pins(apt={"ninja-build": "1.11"}, git={LLVM: "c" * 40})},
)


def lock(
    pins: Pins = PINS, *, recipe: str = RECIPE, base: str = "rocm:5.4.3", stand_in: bool = False
) -> Lock:
    return Lock({"rocm-5.4.3+dpcpp-2022-12": LockedImage(recipe, base, pins, stand_in)})


@pytest.mark.parametrize("mode", ["auto", "locked", "frozen"])
def test_a_fresh_section_is_used(mode: LockMode) -> None:
    assert consult(plan(), lock(), mode).pins == PINS


def test_no_section() -> None:
    assert consult(plan(), None).pins is None
    assert consult(plan(), Lock(), "auto").stale == ()
    for mode in ("locked", "frozen"):
        with pytest.raises(BadInputError) as caught:
            consult(plan(), Lock(), mode)
        assert "no section for rocm-5.4.3+dpcpp-2022-12" in caught.value.why


@pytest.mark.parametrize(
    ("pins", "reason"),
    [
        (dataclasses.replace(PINS, base_digest=""), "no digest of the base rocm:5.4.3"),
        (dataclasses.replace(PINS, apt={"gcc": "12"}), "no version of the apt package rocm-dev"),
        (
            dataclasses.replace(PINS, apt={"gcc": "12", "rocm-dev": "5.5"}),
            "asked for in version 5.4.3, locked in 5.5",
        ),
        (
            dataclasses.replace(PINS, pip={"numpy": ("1.26.4", ())}),
            "no version of the Python package ml_dtypes",
        ),
        (
            dataclasses.replace(PINS, pip={**PINS.pip, "numpy": ("1.2", ())}),
            "numpy>=1.26 is locked in version 1.2",
        ),
        (dataclasses.replace(PINS, downloads={}), f"no sha256 of {KEY}"),
        (dataclasses.replace(PINS, needs={}), "nothing on the component dpcpp"),
        (dataclasses.replace(PINS, needs={"dpcpp": Pins(apt={"ninja-build": "1"})}), f"no commit of {LLVM}"),
        (dataclasses.replace(PINS, needs={"dpcpp": Pins(git={LLVM: "c" * 40})}), "apt package ninja-build"),
    ],
)
def test_what_is_not_pinned_makes_it_stale_in_every_mode(pins: Pins, reason: str) -> None:
    found = consult(plan(), lock(pins))
    assert found.pins is None
    assert any(reason in one for one in found.stale)
    for mode in ("locked", "frozen"):
        with pytest.raises(BadInputError) as caught:
            consult(plan(), lock(pins), mode)
        assert reason in caught.value.why
        assert "tk image lock rocm-5.4.3+dpcpp-2022-12" in caught.value.hint


def test_changed_recipes_make_it_stale_unless_frozen() -> None:
    old = lock(recipe="f" * 64)
    assert "recipes" in consult(plan(), old).stale[0]
    with pytest.raises(BadInputError, match="--locked"):
        consult(plan(), old, "locked")
    assert consult(plan(), old, "frozen").pins == PINS


def test_another_base_makes_it_stale() -> None:
    on_a_stand_in = plan(base=BaseImage("local:1", stand_in=True))
    assert "locked on the base rocm:5.4.3" in consult(on_a_stand_in, lock()).stale[0]
    assert consult(on_a_stand_in, lock(base="local:1", stand_in=True)).pins == PINS
    assert consult(on_a_stand_in, lock(base="other:1", stand_in=True)).stale


def test_a_digest_of_the_recipe_needs_no_pin() -> None:
    pinned = plan(base=BaseImage("rocm:5.4.3", DIGEST))
    assert consult(pinned, lock(dataclasses.replace(PINS, base_digest=""))).stale == ()


def test_the_projects_lock_is_found_from_below(tmp_path: Path) -> None:
    write_lock(tmp_path / "tk.lock", lock())
    below = tmp_path / "src"
    below.mkdir()
    found = plan_locked(plan().section, lambda _pins: plan(), "locked", start=below)[1].pins
    assert found is not None
    assert found.needs["dpcpp"].git == {LLVM: "c" * 40}


def test_modes() -> None:
    assert lock_mode(locked=False, frozen=False) == "auto"
    assert lock_mode(locked=True, frozen=False) == "locked"
    assert lock_mode(locked=False, frozen=True) == "frozen"
    with pytest.raises(UsageError):
        lock_mode(locked=True, frozen=True)


IMAGE = "registry.example.com/tk/rocm:5.4.3-aaaaaaaaaaaa"


def built(key: str = "") -> LockedBuild:
    return LockedBuild(IMAGE, DIGEST, key or plan().key)


@pytest.mark.parametrize("mode", ["auto", "locked", "frozen"])
def test_an_image_of_the_same_plan_is_published(mode: LockMode) -> None:
    found, said = publish(plan(), built(), mode)
    assert (found.published.reference, found.published.digest, said) == (IMAGE, DIGEST, "")
    assert found.key == plan().key
    assert not found.needs[0].published.digest


def test_an_image_of_another_plan_is_ignored_with_a_line_and_refused_when_locked() -> None:
    for mode in ("auto", "frozen"):
        found, said = publish(plan(), built("f" * 64), mode)
        assert found.published.digest == ""
        assert "was built from the plan ffffffffffff" in said
        assert "\n" not in said
    with pytest.raises(BadInputError) as caught:
        publish(plan(), built("f" * 64), "locked")
    assert (caught.value.code, "--locked" in caught.value.what) == (3, True)


def test_frozen_asks_for_nothing_by_name() -> None:
    for image in (built(), built("f" * 64), None):
        found, _ = publish(plan(), image, "frozen")
        assert not found.published.by_name
        assert not found.needs[0].published.by_name
        assert publish(plan(), image)[0].needs[0].published.by_name


def test_an_image_is_recorded_in_its_section(tmp_path: Path) -> None:
    path = tmp_path / "tk.lock"
    with pytest.raises(BadInputError, match="no section"):
        record_build(path, plan(), IMAGE, DIGEST)
    write_lock(path, lock())
    assert record_build(path, plan(), IMAGE, DIGEST)
    assert not record_build(path, plan(), IMAGE, DIGEST)
    found = read_lock(path)
    assert found is not None
    assert found.images[plan().section].built == built()
    assert consult(plan(), found).built == built()
    assert consult(plan(), found).pins is not None


def test_archs_that_are_built_in_have_sections_of_their_own() -> None:
    def of(*archs: str) -> Plan:
        return plan(resolution=resolved(f"{plan().name}@{','.join(archs)}"))

    one, two = of("gfx906"), of("gfx906", "gfx90a")
    assert (one.section, two.section) == (f"{one.name}@gfx906", f"{one.name}@gfx906,gfx90a")
    other = dataclasses.replace(PINS, apt={**PINS.apt, "gcc": "13"})
    both = Lock({
        one.section: LockedImage(RECIPE, "rocm:5.4.3", PINS),
        two.section: LockedImage(RECIPE, "rocm:5.4.3", other),
    })  # fmt: skip
    assert consult(one, both, "locked").pins == PINS
    assert consult(two, both, "locked").pins == other
    assert consult(of("gfx90a"), both).pins is None


@pytest.mark.parametrize(
    ("name", "section"),
    [
        ("cpu", "cpu"),
        ("rocm-5.4", "rocm-5.4.3"),
        ("tvm-sycl-rocm", "tvm-sycl-rocm@gfx906"),
        ("tvm-sycl-rocm@gfx906,gfx90a", "tvm-sycl-rocm@gfx906,gfx90a"),
    ],
)
def test_a_section_typed_as_a_name_is_the_same_plan(name: str, section: str) -> None:
    found = plan_named(name, Selection(lock=None)).plan
    assert found.section == section
    assert plan_named(section, Selection(lock=None)).plan.key == found.key


def test_archs_of_another_vendor_in_a_name() -> None:
    with pytest.raises(UsageError, match="sm_80"):
        plan_named("tvm-sycl-rocm@sm_80", Selection(lock=None))
