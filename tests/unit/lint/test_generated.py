"""Lint has nothing to say about the Dockerfiles that `tk` writes, but that a base has no digest yet."""

from __future__ import annotations

import pytest

from toolchain.images.plan import Plan
from toolchain.images.planner import plan_image
from toolchain.images.render import dockerfile
from toolchain.lint import lint_text
from toolchain.recipes.catalog import load_catalog
from toolchain.recipes.resolve import resolve

NAMES = (
    "cpu", "cpu-sycl", "rocm-5.2-debian", "cuda-12-pip", "rocm-5.4.3+dpcpp-2022-12",
    "cuda-11.8+dpcpp-2022-06", "cuda-11.2+dpcpp-2022-12+tvm-sycl", "rocm-6.4", "cuda-13",
)  # fmt: skip


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", NAMES)
def test_generated_dockerfiles(name: str) -> None:
    for plan in _with_components(plan_image(resolve(name, load_catalog()))):
        found = {one.rule for one in lint_text(dockerfile(plan), where=plan.name)}
        component = {"no-user"} if plan.provides else set()  # FROM scratch: holds files, and is never run
        assert found <= {"base-without-digest", *component}


def _with_components(plan: Plan) -> list[Plan]:
    return [plan, *(one for need in plan.needs for one in _with_components(need))]
