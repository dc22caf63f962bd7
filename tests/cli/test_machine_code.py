"""`tk inspect --machine-code` as typed: the table, JSON, and what has no machine code of a GPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from compiler.core.settings import load_settings
from compiler.targets.cuda_tools import find_nvdisasm
from tests.support import command


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and libraries of it: for architectures of CUDA that nvdisasm knows, and one perhaps not."""
    if find_nvdisasm(load_settings()) is None:
        pytest.skip("nvdisasm is not here")
    made = tmp_path_factory.mktemp("machine-code")
    assert command.tk("zoo", "make", "mnist", cwd=made).code == 0
    done = command.tk("compile", "mnist.onnx", "--target", "cuda:sm_70,sm_80,sm_90,cpu", cwd=made)
    if done.code == 4:
        pytest.skip(done.err)
    assert done.code == 0, done.err
    return made


def resources(report: Any) -> list[dict[str, Any]]:
    launches = [one for kernel in report["kernels"] for one in kernel["launches"]]
    return [{**one, "name": launch["name"]} for launch in launches for one in launch["resources"]]


def test_a_table_for_each_architecture(directory: Path) -> None:
    done = command.tk("inspect", "mnist.cuda-nvidia.so", "--machine-code", cwd=directory)
    assert done.code == 0, done.err
    for arch in ("sm_80", "sm_90"):
        table = done.out.partition(f"machine code for {arch}")[2].partition(f"{arch}: predicted")[0]
        assert {line.split()[0] for line in table.splitlines() if line.startswith("tk_k")} == {
            f"tk_k{number}_0" for number in range(5)
        }
    assert "nothing was measured" in done.out
    assert (
        "machine code for sm_70" in done.out
        or "no machine code: nvdisasm refused the cubin for sm_70" in done.out
    )


def test_json_has_every_loop(directory: Path) -> None:
    done = command.tk("inspect", "mnist.cuda-nvidia.so", "--machine-code", "--json", cwd=directory)
    found = {(one["name"], one["arch"]): one for one in resources(done.json)}
    row = found["tk_k2_0", "sm_90"]
    code = row["code"]
    assert code["certain"]
    assert code["occupancy"]["limited_by"]
    (inner,) = [one for one in code["loops"] if one["innermost"]]
    # 16 channels of 14 x 14 sums of 8 x 25 products, with what stands beside the borders of tiles.
    flops = 2 * 16 * 14 * 14 * 8 * 25
    computed = 2 * code["executed"]["fma"] * 4 * 256
    assert flops <= computed < 2 * flops
    assert inner["units"]["fma"] * inner["rounds"] <= code["executed"]["fma"]
    assert code["microseconds"] > row["least_microseconds"] > 0


def test_without_the_option_nothing_is_read(directory: Path) -> None:
    done = command.tk("inspect", "mnist.cuda-nvidia.so", "--json", cwd=directory)
    assert all(one["code"] is None for one in resources(done.json))


@pytest.mark.parametrize(
    ("file", "words"), [("mnist.cpu.so", "no machine code of a GPU"), ("mnist.onnx", "only a library")]
)
def test_what_has_none_is_told(directory: Path, file: str, words: str) -> None:
    done = command.tk("inspect", file, "--machine-code", cwd=directory)
    assert done.code == 2
    assert words in done.err
