"""Faults that real builds failed with, planted again in dry builds: stubs refuse them as real tools do."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from compiler import BuildError
from tests.images.test_dry_build import Workshop, _pins, _resolution, _stand_in, _unpinned, workshop
from toolchain.engine.build import build_image
from toolchain.images.plan import ContextFile, Plan
from toolchain.images.planner import plan_image
from toolchain.recipes.resolve import Resolution

pytestmark = pytest.mark.slow

__all__ = ["workshop"]  # a fixture


def _with_build(kind: str, **changes: Any) -> Callable[[Resolution], Resolution]:
    """The same with another build of one component."""

    def change(found: Resolution) -> Resolution:
        parts = []
        for one in found.components:
            build = one.build
            if one.kind == kind and build is not None:
                one = dataclasses.replace(one, build=build.model_copy(update=changes))
            parts.append(one)
        return dataclasses.replace(found, components=tuple(parts))

    return change


def _without_stub_folder(found: Resolution) -> Resolution:
    """DPC++ for CUDA that is not told where the driver's stub is."""
    (build,) = [one.build for one in found.components if one.kind == "dpcpp"]
    assert build is not None
    layers = tuple(one.model_copy(update={"env": {}}) for one in build.layers)
    return _with_build("dpcpp", layers=layers)(found)


def _with_lists(found: Resolution) -> Resolution:
    """The base's own lists of packages are left where they are."""
    layer = found.stack.layer.model_copy(update={"remove": ()})
    return dataclasses.replace(found, stack=dataclasses.replace(found.stack, layer=layer))


def _planned(workshop: Workshop, name: str, change: Callable[[Resolution], Resolution]) -> Plan:
    resolution = _resolution(name)
    stand_in = build_image(workshop.engine, _stand_in(workshop.base, resolution)).reference
    lock = _pins(workshop.mirror, resolution)
    return plan_image(
        change(_unpinned(resolution, workshop.mirror)), site=workshop.site, lock=lock, base=stand_in
    )


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("cuda-11.8+dpcpp-2022-12", _without_stub_folder, "CUDA_CUDA_LIBRARY"),
        (
            "rocm-tvm",
            _with_build("tvm-rocm", python_packages=("attrs==26.1.0",)),
            "requires a different Python: 3.8",
        ),
        ("cuda-11.2", _with_lists, "outdated.invalid/cuda.list"),
        ("oneapi-2023.1", _with_lists, "outdated.invalid/oneAPI.list"),
    ],
)
def test_a_fault_that_is_planted_again_is_found(
    name: str, change: Callable[[Resolution], Resolution], said: str, workshop: Workshop
) -> None:
    with pytest.raises(BuildError) as caught:
        build_image(workshop.engine, _planned(workshop, name, change), site=workshop.site)
    assert said in caught.value.why


def test_a_build_whose_steps_do_not_see_the_mirrors_is_found(workshop: Workshop) -> None:
    """DPC++ 2022-06 clones while it is configured; without mirrors that asks the address itself."""
    (need,) = _planned(workshop, "rocm-5.4.3+dpcpp-2022-06", lambda found: found).needs
    before, after = b"\nuse_git_mirrors\n", b'\n[ "$1" = run ] || use_git_mirrors\n'
    files = []
    for one in need.files:
        assert one.data.count(before) == (one.path == "tk/site.sh")
        files.append(ContextFile(one.path, one.data.replace(before, after), one.mode))
    with pytest.raises(BuildError) as caught:
        build_image(workshop.engine, dataclasses.replace(need, files=tuple(files)), site=workshop.site)
    assert "OpenCL-Headers" in caught.value.why
