"""SYCL without a runtime: the text ahead of time, DPC++'s command lines, what the targets allow."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.core.diagnostics import HostError, UsageError
from compiler.core.settings import Settings, load_settings
from compiler.render.vocabulary_sycl import HEADER, SYCL_CPU, SYCL_GPU
from compiler.targets import get_target
from compiler.targets.device import Module
from compiler.targets.sycl_tools import ahead_text, module_text, pieces, probe_dpcpp

_KERNEL = """
TK_KERNEL(tk_k0_0, 32, 8, 2, const float *__restrict b0, tk_f32x4 *__restrict b3) {
  TK_SHARED(float, s0, 100);
  TK_SHARED(tk_f32x4, s1, 8);
}

TK_KERNEL(tk_k0_1, 64, 1, 1, float *__restrict b1) {
}
"""
_CUDA, _HIP = "nvptx64-nvidia-cuda", "amdgcn-amd-amdhsa"
_TEXT = f"the prelude\n{_KERNEL}"

# Takes DPC++'s options: says that it has SYCL, notes its command lines, writes its output.
_STAND_IN = """\
#!{python}
import sys
words = sys.argv[1:]
if "--version" in words:
    print("clang version 99 (a stand-in for DPC++)")
elif "-fsyntax-only" not in words:
    with open({log!r}, "a") as log:
        print(*words, file=log)
    with open(words[words.index("-o") + 1], "wb") as output:
        output.write(b"a shim")
"""


@pytest.fixture
def dpcpp(tmp_path: Path) -> tuple[Settings, Path]:
    """Settings that name a stand-in for DPC++, and the file where it notes its command lines."""
    log = tmp_path / "log"
    program = tmp_path / "dpcpp"
    program.write_text(_STAND_IN.format(python=sys.executable, log=str(log)))
    program.chmod(0o755)
    settings = replace(load_settings(), dpcxx=str(program), cache_dir=tmp_path / "cache")
    return settings, log


def built(target: str, settings: Settings) -> list[tuple[str, str]]:
    made = get_target(target)
    assert made.device is not None
    images = made.device.build(Module(_TEXT, (), "0a1b2c3d"), made, settings)
    return [(image.kind, image.arch) for image in images.images]


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (
            "sycl-nvidia:sm_80",
            f"-fsycl-targets={_CUDA} -Xsycl-target-backend={_CUDA} --cuda-gpu-arch=sm_80",
        ),
        (
            "sycl-amd:gfx90a",
            f"-fsycl-targets={_HIP} -Xsycl-target-backend={_HIP} --offload-arch=gfx90a",
        ),
        (
            "sycl-hygon:gfx906",
            f"-fsycl-targets={_HIP} -Xsycl-target-backend={_HIP} --offload-arch=gfx906",
        ),
        ("sycl-intel", "-fsycl-targets=spir64"),
    ],
)
def test_command_lines(dpcpp: tuple[Settings, Path], target: str, options: str) -> None:
    settings, log = dpcpp
    arch = get_target(target).archs[0]
    assert built(target, settings) == [("source", ""), ("sycl-shim", arch)]
    (line,) = log.read_text().splitlines()
    assert f" {options} " in line
    for option in ("-fsycl", "-fno-fast-math", "-fno-sycl-id-queries-fit-in-int", "-DTK_AHEAD", "-shared"):
        assert option in line.split()


def test_one_shim_for_each_architecture(dpcpp: tuple[Settings, Path]) -> None:
    settings, log = dpcpp
    assert built("sycl-nvidia:sm_70,sm_90", settings)[1:] == [("sycl-shim", "sm_70"), ("sycl-shim", "sm_90")]
    assert len(log.read_text().splitlines()) == 2
    built("sycl-nvidia:sm_70,sm_90", settings)
    assert len(log.read_text().splitlines()) == 2  # from the cache


def test_without_dpcpp_the_message_says_what_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(HostError) as caught:
        built("sycl-amd", replace(load_settings(), dpcxx=None))
    assert "DPC++" in str(caught.value)
    assert "TK_DPCXX" in str(caught.value)


def test_a_compiler_without_sycl_is_refused(tmp_path: Path) -> None:
    program = tmp_path / "clang++"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    assert probe_dpcpp(str(program)) is None
    with pytest.raises(HostError, match="does not compile SYCL"):
        built("sycl-nvidia", replace(load_settings(), dpcxx=str(program)))


def test_launchers_reverse_the_axes_and_give_memory() -> None:
    text = ahead_text(module_text(_TEXT, "0a1b2c3d", 32), "sm_80")
    assert text.startswith("#define TK_MODEL sm_80_0a1b2c3d\n#define TK_SUBGROUP 32\n")
    assert "[[sycl::reqd_work_group_size(2, 8, 32)]]" in text
    assert "sycl::range<1>(576), h)" in text  # 100 floats and 8 vectors, each at a multiple of 64 bytes
    assert "tk_f32x4 * const b3 = (tk_f32x4 *)args[1];" in text
    assert "TK_NAME(tk_k0_1)(item, nullptr, b1);" in text
    names = re.findall(r"class (TK_NAME\(\w+\));", text)
    assert names == ["TK_NAME(tk_k0_0_kernel)", "TK_NAME(tk_k0_1_kernel)"]


def test_x_is_the_fastest_dimension_of_grid_and_block() -> None:
    header = HEADER.read_text()
    for word, function in (("GROUP", "get_group"), ("LOCAL", "get_local_id")):
        for axis, number in zip("XYZ", (2, 1, 0), strict=True):
            assert f"#define TK_{word}_{axis} TK_ITEM.{function}({number})\n" in header
    assert SYCL_GPU.device is not None
    assert SYCL_GPU.device.axes["blockIdx.x"] == "(int)TK_GROUP_X"
    assert SYCL_GPU.device.axes["threadIdx.z"] == "(int)TK_LOCAL_Z"


def test_the_prelude_is_one_text() -> None:
    assert not re.search(r'^#include "', SYCL_CPU.prelude, re.MULTILINE)
    assert SYCL_CPU.prelude.count("#ifndef TK_VECTOR_H") == 1


def test_pieces_hold_every_kernel_once() -> None:
    text = "".join([_TEXT, *(_KERNEL.replace("k0", f"k{n}") for n in range(1, 9))])
    parts = pieces(text, limit=600)
    assert len(parts) > 2
    assert all(part.startswith("the prelude\n") for part in parts)
    found = [name for part in parts for name in re.findall(r"TK_KERNEL\((\w+)", part)]
    assert found == [f"tk_k{n}_{m}" for n in range(9) for m in (0, 1)]


def test_architectures_are_checked() -> None:
    with pytest.raises(UsageError, match="sm_8"):
        get_target("sycl-nvidia:sm_8")
    with pytest.raises(UsageError):
        get_target("sycl-amd:gfx906,gfx1030")  # sub-groups of 64 and of 32
    assert get_target("sycl-amd").facts.subgroup_sizes == (64,)
    assert get_target("sycl-cpu").facts.max_lanes == 16
