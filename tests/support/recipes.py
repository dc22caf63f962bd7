"""The shipped recipes, read once, and every name that they offer."""

from __future__ import annotations

import functools

from compiler import BadInputError
from toolchain.images.formats.bake import every_need
from toolchain.images.plan import Plan
from toolchain.images.planner import plan_image
from toolchain.recipes.catalog import RecipeCatalog, load_catalog
from toolchain.recipes.resolve import Component, resolve

_DPCPP_STACKS = ("cuda-11.8", "rocm-5.4.3", "dtk-23.04", "oneapi-2023.1")
_WITH_COMPONENTS = (
    "cpu+llvm-source-14.0.6+tvm-0.10.0+ubuntu-20.04",
    "cuda-11.2.2+llvm-14+tvm-0.10.0",
    "cuda-12.1.0+llvm-15",
    "cuda-12.1.0+llvm-16",
    "oneapi-2022.2+intel-gpu-22.12.22749",
    "oneapi-2024.1.0+intel-gpu-24.13.29138.7",
    "oneapi-2024.2.1+intel-gpu-24.22.29735.20",
    "cuda-12.1.1+llvm-14",
    "rocm-5.2.3+rocm-tvm-scripts-2022-09+tvm-rocm-5.2",
    "rocm-5.4.3+llvm-14+tvm-0.10.0",
)


@functools.cache
def catalog() -> RecipeCatalog:
    """The shipped recipes alone."""
    return load_catalog()


@functools.cache
def shipped_names() -> tuple[str, ...]:
    """Every base of every version of every stack, every environment, every component on some stack.

    Without those that a rule refuses: they are listed so that the rule can answer.
    """
    stacks = {
        one.stack.name.replace("{version}", row.row.version) + suffix
        for one in catalog().stacks.values()
        for row in one.rows
        for suffix in ("", *(f"+{base.system}" for base in row.row.bases[1:]))
    }
    names = sorted({*stacks, *catalog().environments, *dpcpp_names(), *_WITH_COMPONENTS})
    return tuple(name for name in names if not _is_refused(name))


def _is_refused(name: str) -> bool:
    try:
        resolve(name, catalog())
    except BadInputError:
        return True
    return False


@functools.cache
def dpcpp_names() -> tuple[str, ...]:
    """Every release of DPC++ that is a compiler, on one stack of each vendor that it is made for."""
    releases = [
        one.row.version for one in catalog().components["dpcpp"].releases if one.row.build is not None
    ]
    return tuple(f"{stack}+dpcpp-{version}" for stack in _DPCPP_STACKS for version in releases)


@functools.cache
def plan(name: str) -> Plan:
    """The plan of a shipped name."""
    return plan_image(resolve(name, catalog()))


def all_plans(name: str) -> tuple[Plan, ...]:
    """The plan of a name and those of its components, components first."""
    found = plan(name)
    return (*every_need(found), found)


def builds(name: str) -> list[tuple[Component, Plan]]:
    """The components that are built for a name, each with its plan."""
    found = plan(name)
    assert found.resolution is not None
    built = [one for one in found.resolution.components if one.build is not None]
    return list(zip(built, found.needs, strict=True))
