"""The emulator on kernels by hand: right ones compute what numpy computes, each defect is found and named."""

from __future__ import annotations

import dataclasses
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from compiler.core.diagnostics import BadInputError
from compiler.core.settings import load_settings
from compiler.render.vocabulary_cuda import CUDA, HIP
from compiler.targets.toolchain import Cxx, probe_cxx
from compiler.verify.emulate import build_emulation, split_module
from tests.support.cluster_kernels import RIGHT_CLUSTERS, WRONG_CLUSTERS
from tests.support.emulated_kernels import RIGHT
from tests.support.emulation import Emulated
from tests.support.last_block_kernels import RIGHT_LAST, WRONG_LAST
from tests.support.wrong_kernels import WRONG

COMPILERS = [path for name in ("g++", "clang++") if (path := shutil.which(name))]
SETTINGS = load_settings()
ALL_RIGHT = RIGHT | RIGHT_CLUSTERS | RIGHT_LAST
ALL_WRONG = WRONG | WRONG_CLUSTERS | WRONG_LAST


@pytest.fixture(scope="module", params=COMPILERS, ids=lambda path: Path(path).name)
def cxx(request: pytest.FixtureRequest) -> Cxx:
    return probe_cxx(request.param)


def _numbered(prelude: str, texts: dict[str, str]) -> tuple[str, dict[str, str]]:
    """One module of all kernels, which get names of their own."""
    names = {key: f"k{number}" for number, key in enumerate(texts)}
    parts = [
        text.replace("// k:", f"// {names[key]}:").replace(" k(", f" {names[key]}(")
        for key, text in texts.items()
    ]
    return "".join([prelude, *parts]), names


@pytest.fixture(scope="module")
def right(cxx: Cxx) -> dict[tuple[int, bool], tuple[Emulated, dict[str, str]]]:
    built: dict[tuple[int, bool], tuple[Emulated, dict[str, str]]] = {}
    for subgroup, words in ((32, CUDA), (64, HIP)):
        texts = {key: item.text for key, item in ALL_RIGHT.items() if item.subgroup == subgroup}
        module, names = _numbered(words.prelude, texts)
        for checks in (True, False):
            built[subgroup, checks] = Emulated(module, SETTINGS, cxx=cxx, checks=checks), names
    return built


@pytest.fixture(scope="module")
def wrong(cxx: Cxx) -> tuple[Emulated, dict[str, str], str]:
    module, names = _numbered(CUDA.prelude, {key: item.text for key, item in ALL_WRONG.items()})
    return Emulated(module, SETTINGS, cxx=cxx), names, module


@pytest.mark.parametrize("checks", [True, False], ids=["checked", "unchecked"])
@pytest.mark.parametrize("key", ALL_RIGHT)
def test_right_kernels(
    right: dict[tuple[int, bool], tuple[Emulated, dict[str, str]]], key: str, checks: bool
) -> None:
    item = ALL_RIGHT[key]
    emulated, names = right[item.subgroup, checks]
    assert emulated.checked == checks
    arrays = [array.copy() for array in item.arrays]
    assert emulated.launch(names[key], item.grid, item.block, arrays) == ""
    np.testing.assert_allclose(arrays[-1], item.want(*item.arrays[:-1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("key", ALL_WRONG)
def test_wrong_kernels(wrong: tuple[Emulated, dict[str, str], str], key: str) -> None:
    item = ALL_WRONG[key]
    emulated, names, module = wrong
    random = np.random.default_rng(1)
    arrays = [random.standard_normal(64, dtype=np.float32), np.zeros(64, np.float32)]
    message = emulated.launch(names[key], item.grid, item.block, arrays)
    first = module.count("\n", 0, module.index(f"// {names[key]}:"))
    for part in item.message:
        assert _spelled_out(part, first) in message, message
    assert message.startswith(f"{names[key]}: ")


def _spelled_out(part: str, first: int) -> str:
    """Threads in full, and line numbers of a kernel as those of the module that it stands in."""
    part = re.sub(r"\bT(\d+)", r"thread (\1, 0, 0) of block (0, 0, 0)", part)
    part = re.sub(r"\bS(\d+)", r"thread (\1, 0, 0) of the same block", part)
    return re.sub(r"line (\d+)", lambda found: f"line {int(found[1]) + first}", part)


def test_what_cannot_be_launched(right: dict[tuple[int, bool], tuple[Emulated, dict[str, str]]]) -> None:
    emulated, names = right[64, True]
    one = np.zeros(192, np.float32)
    (name,) = names.values()
    assert "no such kernel" in emulated.launch("other", (1, 1, 1), (1, 1, 1), [one])
    assert "1 arguments were given for 2 parameters" in emulated.launch(name, (1, 1, 1), (1, 1, 1), [one])
    assert "2048 threads in a block" in emulated.launch(name, (1, 1, 1), (2048, 1, 1), [one, one])
    emulated, names = right[32, True]
    name = names["rounds of copies, from a neighbour"]
    assert "3 blocks along z in clusters of 2" in emulated.launch(name, (1, 1, 3), (32, 1, 1), [one, one])


def test_text_that_is_no_module() -> None:
    with pytest.raises(BadInputError, match="holds no kernels"):
        split_module("int main() {}")
    unsized = next(iter(RIGHT.values())).text.partition("\n")[2]
    with pytest.raises(BadInputError, match="sizes of the buffers are not known"):
        split_module(unsized)
    flat = RIGHT_CLUSTERS["rounds of copies, from a neighbour"].text.replace("(1, 1, 2)", "(2, 1, 1)")
    with pytest.raises(BadInputError, match="no clusters of this shape"):
        split_module(flat)


def test_built_once(tmp_path: Path) -> None:
    settings = dataclasses.replace(SETTINGS, cache_dir=tmp_path)
    text = RIGHT["votes"].text
    first = build_emulation(text, settings)
    assert build_emulation(text, settings) == first
    assert build_emulation(text, settings, checks=False) != first
