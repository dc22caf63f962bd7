"""OpenCL targets without a driver: facts, images, the tools that make SPIR-V."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from compiler.core.cache import ContentCache
from compiler.core.diagnostics import BuildError, UsageError
from compiler.core.settings import load_settings
from compiler.loops.intrinsics import SHUFFLE_XOR
from compiler.render.vocabulary_opencl import HEADER
from compiler.targets import get_target
from compiler.targets.device import Module
from compiler.targets.opencl import GPUS, LOCAL_BYTES, Gpu, SpirvTools, find_spirv_tools, to_spirv

KERNEL = "__kernel void tk_k0_0(__global float *restrict b0) { b0[0] = tk_relu(b0[1]); }"
TEXT = f"{HEADER.read_text()}\n{KERNEL}\n"
MODULE = Module(TEXT, (), "01234567")
SPIRV_MAGIC = b"\x03\x02\x23\x07"

_STAND_IN = """\
#!{python}
import sys
words = sys.argv[1:]
if "--version" in words:
    print("a stand-in, version {version}")
elif "{name}" == "clang" and b"refuse me" in open(words[words.index("-o") - 1], "rb").read():
    print("module.cl:3:1: error: it asked for it", file=sys.stderr)
    sys.exit(1)
else:
    open(words[words.index("-o") + 1], "wb").write(b"made by {name} {version}")
"""


def stand_ins(folder: Path, *versions: str) -> str:
    """A PATH with a clang and a translator of each version."""
    for version in versions:
        for name in ("clang", "llvm-spirv"):
            tool = folder / f"{name}{version}"
            tool.write_text(_STAND_IN.format(python=sys.executable, name=name, version=version))
            tool.chmod(0o755)
    return str(folder)


def test_processors_have_the_facts_of_host_code() -> None:
    host, cores = get_target("cpu").facts, get_target("opencl-cpu").facts
    assert (cores.vector_bits, cores.l2, cores.hertz) == (host.vector_bits, host.l2, host.hertz)
    assert (cores.launches, cores.binds_threads) == (True, False)
    assert cores.lanes(8) <= 16 < 64
    assert cores.limit("shared_bytes") == LOCAL_BYTES
    assert not cores.features
    assert get_target("opencl-cpu:x86-64-v3").facts.vector_bits == 256
    assert get_target("opencl-cpu", "x86-64-v3").text == "opencl-cpu:x86-64-v3"


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.vendor)
def test_one_name_serves_all_gpus_of_a_vendor(gpu: Gpu) -> None:
    """One source for all, so nothing in it may rely on what differs among them: the lanes of a sub-group."""
    facts = get_target(f"opencl-{gpu.vendor}").facts
    assert SHUFFLE_XOR not in facts.intrinsics
    with pytest.raises(UsageError, match=f"the one name is {gpu.arch.name}"):
        get_target(f"opencl-{gpu.vendor}", f"{gpu.arch.name},other")


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.vendor)
def test_gpus(gpu: Gpu) -> None:
    vendor, arch = gpu.vendor, gpu.arch.name
    target = get_target(f"opencl-{vendor}")
    facts = target.facts
    assert target.text == f"opencl-{vendor}:{arch}"
    assert facts.launches and facts.binds_threads  # noqa: PT018
    assert "shared" in facts.scopes
    assert facts.limit("threads_per_block") in (256, 1024)
    assert (facts.limit("shared_bytes") or 0) >= 48 << 10
    assert facts.lanes(32) == 4
    with pytest.raises(UsageError, match="unknown architecture `sm_1`"):
        get_target(f"opencl-{vendor}:sm_1")


def test_processors_get_the_source_alone() -> None:
    target = get_target("opencl-cpu")
    assert target.device is not None
    images = target.device.build(MODULE, target, load_settings())
    ((kind, arch, data),) = [(one.kind, one.arch, one.data) for one in images.images]
    assert (kind, arch, data.decode()) == ("source", "cpu", TEXT)
    assert target.device.runtime == ("opencl", "opencl_choice", "program_cache")
    assert target.device.suffix == ".cl"


def test_without_tools_there_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    target = get_target("opencl-amd")
    assert target.device is not None
    find_spirv_tools.cache_clear()
    images = target.device.build(MODULE, target, load_settings())
    find_spirv_tools.cache_clear()
    assert [one.kind for one in images.images] == ["source"]
    assert "clang-15 llvm-spirv-15" in images.notes[0]


def test_the_newest_pair_of_one_version_is_taken(tmp_path: Path) -> None:
    path = stand_ins(tmp_path, "-14", "-16")
    (tmp_path / "llvm-spirv-16").unlink()
    (tmp_path / "clang-18").touch(mode=0o755)
    tools = find_spirv_tools(path)
    assert tools is not None
    assert (Path(tools.clang).name, Path(tools.translator).name) == ("clang-14", "llvm-spirv-14")
    assert find_spirv_tools(str(tmp_path / "empty")) is None


def test_spirv_is_made_once_and_errors_are_shown(tmp_path: Path) -> None:
    tools = find_spirv_tools(stand_ins(tmp_path, "-15"))
    assert tools is not None
    cache = ContentCache(tmp_path / "cache")
    assert to_spirv("text", tools, cache) == b"made by llvm-spirv -15"
    gone = SpirvTools("/nowhere/clang", "/nowhere/llvm-spirv", tools.identity)
    assert to_spirv("text", gone, cache) == b"made by llvm-spirv -15"
    with pytest.raises(BuildError, match="generated OpenCL C was refused") as caught:
        to_spirv("refuse me", tools, cache)
    assert "it asked for it" in caught.value.why


@pytest.mark.skipif(
    find_spirv_tools() is None, reason="clang and llvm-spirv of one version are not installed"
)
def test_real_tools_take_the_helpers(tmp_path: Path) -> None:
    tools = find_spirv_tools()
    assert tools is not None
    data = to_spirv(TEXT, tools, ContentCache(tmp_path))
    assert data[:4] == SPIRV_MAGIC
