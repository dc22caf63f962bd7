"""What a base brings and must not keep: lists of apt that no longer count, an entrypoint of its vendor."""

from __future__ import annotations

import pytest

from tests.support.recipes import plan, shipped_names
from toolchain.images.plan import Cmd, Entrypoint, Plan
from toolchain.images.render import dockerfile

INTEL = ("/etc/apt/sources.list.d/oneAPI.list", "/etc/apt/sources.list.d/intel-graphics.list")
NVIDIA = ("/etc/apt/sources.list.d/cuda.list", "/etc/apt/sources.list.d/nvidia-ml.list")
OUTDATED = {
    "cuda-11.2.2": NVIDIA,
    "cuda-11.4.2": NVIDIA,
    "oneapi-2022.2": INTEL,
    "oneapi-2023.1.0": INTEL,
    "oneapi-2023.1.0+ubuntu-20.04": INTEL,
    "oneapi-2023.2.1": INTEL,
    "oneapi-2023.2.1+ubuntu-20.04": INTEL,
    "oneapi-2023.1+dpcpp-2022-12": INTEL,
    "oneapi-2024.1.0": INTEL,
}


def commands(one: Plan) -> list[tuple[str, ...]]:
    """Everything that is run, stage after stage; later stages stand on the first."""
    return [words for run in one.runs() for words in run.commands]


@pytest.mark.parametrize("name", OUTDATED)
def test_lists_with_an_outdated_key_go_before_the_first_update(name: str) -> None:
    for one in (plan(name), *plan(name).needs):
        done = commands(one)
        update = next(i for i, words in enumerate(done) if words[2:4] == ("apt", "update"))
        removed = {path for words in done[:update] if words[:2] == ("rm", "-f") for path in words[2:]}
        assert removed >= set(OUTDATED[name])


def test_newer_bases_keep_their_lists() -> None:
    assert not any(words[:2] == ("rm", "-f") for words in commands(plan("oneapi-2024.2.1")))


@pytest.mark.parametrize("name", shipped_names())
def test_no_image_starts_a_program_of_its_vendor(name: str) -> None:
    last = plan(name).stages[-1].instructions
    assert last[-2:] == (Entrypoint(()), Cmd(("bash",)))
    assert dockerfile(plan(name)).rstrip().endswith('ENTRYPOINT []\nCMD ["bash"]')
