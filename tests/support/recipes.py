"""The shipped recipes, read once, and every name that they offer."""

from __future__ import annotations

import functools

from toolchain.images.formats.bake import every_need
from toolchain.images.plan import Plan
from toolchain.images.planner import plan_image
from toolchain.recipes.book import RecipeBook, load_book
from toolchain.recipes.resolve import resolve

_DPCPP_STACKS = ("cuda-11.8", "rocm-5.4.3", "dtk-23.04", "oneapi-2023.1")


@functools.cache
def book() -> RecipeBook:
    """The shipped recipes alone."""
    return load_book()


@functools.cache
def shipped_names() -> tuple[str, ...]:
    """Every version of every stack, every environment, each DPC++ release on a stack of each vendor."""
    stacks = (
        one.stack.name.replace("{version}", row.row.version)
        for one in book().stacks.values()
        for row in one.rows
    )
    return tuple(sorted({*stacks, *book().environments, *dpcpp_names()}))


@functools.cache
def dpcpp_names() -> tuple[str, ...]:
    """Every release of DPC++ that is a compiler, on one stack of each vendor that it is made for."""
    releases = [one.row.version for one in book().components["dpcpp"].releases if one.row.build is not None]
    return tuple(f"{stack}+dpcpp-{version}" for stack in _DPCPP_STACKS for version in releases)


@functools.cache
def plan(name: str) -> Plan:
    """The plan of a shipped name; what rules refuse is planned all the same."""
    return plan_image(resolve(name, book(), allow=tuple(book().rules)))


def all_plans(name: str) -> tuple[Plan, ...]:
    """The plan of a name and those of its components, components first."""
    found = plan(name)
    return (*every_need(found), found)
