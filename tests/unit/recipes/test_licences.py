"""Licences of what images are made of: each shipped part states one, with its source."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.recipes import catalog
from toolchain.recipes.licences import kept_private, parts_of
from toolchain.recipes.resolve import resolve

VENDORS = {
    "cuda-11.2": ["cuda-11.2.2"],
    "cuda-12-pip": ["cuda-pip-12"],
    "oneapi-2024.2": ["oneapi-2024.2.1"],
    "dtk-23.04": ["dtk-23.04"],
    "cpu-sycl": ["cpu-sycl-2026.2.0"],
    "rocm-5.4": ["rocm-5.4.3"],
    "cuda-11.8+dpcpp-2022-12": ["cuda-11.8.0"],
    "cpu": [],
    "llvm-19": [],
    "rocm-5.2-debian": [],
}


def test_every_shipped_row_states_its_licence() -> None:
    assert [one.where for one in catalog().entries() if one.row.licence is None] == []


@pytest.mark.parametrize("name", VENDORS)
def test_what_may_not_be_passed_on(name: str) -> None:
    found = resolve(name, catalog())
    assert [one.name for one in kept_private(parts_of(found))] == VENDORS[name]


def test_a_part_that_states_none_stays_private() -> None:
    found = resolve("cpu", catalog())
    bare = found.stack.row.model_copy(update={"licence": None})
    unknown = dataclasses.replace(found, stack=dataclasses.replace(found.stack, row=bare))
    (one,) = kept_private(parts_of(unknown))
    assert (one.name, one.terms) == ("cpu-12", "no licence stated")
