"""What `tk image diff` finds between two plans."""

from __future__ import annotations

from tests.support.recipes import catalog, plan
from toolchain.images.diff import PlanChange, diff_plans
from toolchain.images.plan import Pins
from toolchain.images.planner import plan_image
from toolchain.recipes.resolve import resolve


def found(first: str, second: str) -> dict[tuple[str, str, str], PlanChange]:
    return {(one.image, one.kind, one.name): one for one in diff_plans(plan(first), plan(second))}


def test_the_same_image_has_no_differences() -> None:
    assert diff_plans(plan("cpu"), plan("cpu")) == ()
    assert diff_plans(plan("rocm-5.4.3"), plan("rocm-5.4")) == ()


def test_a_component_more() -> None:
    differences = found("rocm-5.4.3", "rocm-5.4.3+dpcpp-2022-12")
    assert differences["image", "component", "dpcpp"].change == "added"
    assert differences["image", "component", "dpcpp"].after == "2022-12"
    assert differences["image", "apt", "libhwloc15"].change == "added"
    assert differences["image", "environment", "SYCL_DEVICE_FILTER"].after == "hip"
    assert differences["dpcpp", "git", "https://github.com/intel/llvm"].change == "added"
    assert differences["image", "instructions", "Dockerfile"].lines
    backwards = found("rocm-5.4.3+dpcpp-2022-12", "rocm-5.4.3")
    assert {one.change for one in backwards.values() if not one.lines} == {"removed", "changed"}
    assert backwards["image", "component", "dpcpp"].change == "removed"


def test_other_versions() -> None:
    differences = found("rocm-5.2.3+dpcpp-2022-09", "rocm-5.4.3+dpcpp-2022-12")
    assert differences["image", "component", "rocm"].before == "5.2.3"
    assert differences["image", "component", "rocm"].after == "5.4.3"
    assert differences["dpcpp", "git", "https://github.com/intel/llvm"].change == "changed"
    sources = differences["image", "file", "apt/rocm.sources"].lines
    assert any("rocm/apt/5.2.3" in line for line in sources if line.startswith("-"))
    assert any("rocm/apt/5.4.3" in line for line in sources if line.startswith("+"))


def test_what_a_lock_pins_is_a_difference() -> None:
    resolution = resolve("cuda-12-pip", catalog())
    pins = Pins(pip={"nvidia-cuda-nvrtc-cu12": ("12.9.86", ("a" * 64,))})
    differences = diff_plans(plan("cuda-12-pip"), plan_image(resolution, lock=pins))
    assert {one.kind for one in differences} == {"instructions", "file"}
