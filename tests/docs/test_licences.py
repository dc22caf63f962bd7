"""The page of licences is current and complete, and agrees with what installed distributions state."""

from __future__ import annotations

import importlib.metadata
import tomllib
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.command import ROOT
from tests.support.recipes import catalog
from toolchain.licences import DISTRIBUTIONS, distributions, licences_page

PROJECT: Mapping[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
# What metadata without an SPDX expression says, and what that is.
SAID = {
    "MIT License": {"MIT"},
    "Apache Software License": {"Apache-2.0"},
    "BSD License": {"BSD-2-Clause", "BSD-3-Clause"},
    "ISC License (ISCL)": {"ISC"},
    "3-Clause BSD License": {"BSD-3-Clause"},
    "LICENSE": {"MPL-2.0"},  # spython's metadata names its file, which is this
    "GPL-3.0": {"GPL-3.0-only"},
    "Other/Proprietary License": {
        "Intel End User License Agreement for Developer Tools",
        "LicenseRef-NVIDIA-Proprietary",
        "NVIDIA Proprietary Software",
    },
}


def stated(name: str) -> set[str]:
    """Licences, any of which the distribution's metadata may mean; empty when it states none."""
    found = importlib.metadata.metadata(name)
    if found.get("License-Expression"):
        return {found["License-Expression"]}
    classes = [one for one in found.get_all("Classifier") or () if one.startswith("License ::")]
    words = [one.rpartition(" :: ")[2] for one in classes] or (found.get("License") or "").splitlines()[:1]
    return {meaning for word in words for meaning in SAID.get(word, {word})}


def test_the_page_is_current() -> None:
    assert (ROOT / "docs" / "licences.md").read_text() == licences_page(PROJECT), "run `bin/just docs`"


def test_nothing_is_missing() -> None:
    """A distribution that is asked for needs its licence in toolchain/licences.py."""
    assert sorted(distributions(catalog(), PROJECT).keys() - DISTRIBUTIONS.keys()) == []


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_what_is_installed_states_the_same(name: str) -> None:
    try:
        words = stated(name)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed here")
    assert not words or words & {DISTRIBUTIONS[name], *DISTRIBUTIONS[name].split(" AND ")}, words
