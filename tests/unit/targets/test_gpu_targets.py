"""Targets for GPUs: architectures, what several of them allow, compilers and what they tell, the cache."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest

from compiler.core.diagnostics import BuildError, HostError, UsageError
from compiler.core.settings import Settings, load_settings
from compiler.core.types import F32
from compiler.loops.build import Builder
from compiler.render.device import render_launches
from compiler.schedule.chooser import AnalyticChooser, ReplayChooser
from compiler.schedule.rules import schedule_func
from compiler.targets import cuda, get_target, hip
from compiler.targets.code_object import resources, unbundled
from compiler.targets.cuda_tools import CudaTool, cuda_tools, ptxas_resources
from compiler.targets.device import Image, Images, Module, Resource
from compiler.targets.gpu import Built, Tool, build_images
from compiler.targets.hip_tools import HipTool, find_hipcc
from compiler.workbench.steps import lowered_for

KERNEL = """
extern "C" __global__ void __launch_bounds__(64) tk_k0_0(const float *__restrict__ a, float *__restrict__ b) {
  alignas(16) __shared__ float s0[64];
  const int i0 = (int)threadIdx.x;
  s0[i0] = tk_exp(a[i0]);
  __syncthreads();
  b[i0] = s0[63 - i0];
}
"""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return load_settings({"HOME": str(tmp_path), "TK_CACHE_DIR": str(tmp_path / "cache")})


# ---------------------------------------------------------------- architectures


@pytest.mark.parametrize(
    ("text", "archs", "lanes"),
    [
        ("cuda", ("sm_70",), (32,)),
        ("cuda-nvidia:sm_90,sm_70", ("sm_70", "sm_90"), (32,)),
        ("rocm:gfx906,gfx90a", ("gfx906", "gfx90a"), (64,)),
        ("hip:gfx1030", ("gfx1030",), (32,)),
        ("dtk", ("gfx906",), (64,)),
    ],
)
def test_names(text: str, archs: tuple[str, ...], lanes: tuple[int, ...]) -> None:
    target = get_target(text)
    assert target.archs == archs
    assert target.facts.subgroup_sizes == lanes
    assert target.facts.binds_threads
    assert get_target(target.text) == target


def test_several_archs_allow_what_all_of_them_do() -> None:
    alone = {arch: get_target("cuda", arch).facts for arch in ("sm_75", "sm_80")}
    both = get_target("cuda", "sm_75,sm_80").facts
    for name, _ in both.limits:
        assert both.limit(name) == min(facts.limit(name) or 0 for facts in alone.values())
    assert both.features == alone["sm_75"].features & alone["sm_80"].features
    assert "cp.async" in alone["sm_80"].features - both.features


@pytest.mark.parametrize("row", [*cuda.ARCHS.values(), *hip.ARCHS.values()], ids=lambda row: row.name)
def test_rows_are_plausible(row: cuda.GpuArch) -> None:
    limits = row.limits()
    assert 48 << 10 <= limits["shared_bytes"] <= limits["shared_bytes_most"] <= 256 << 10
    assert limits["threads_per_block"] <= limits["threads_per_unit"]
    assert row.units > 1
    assert 0.1e12 < 2.0 * row.fma * row.units * row.hertz < 200e12
    assert row.bandwidth > 1e11


@pytest.mark.parametrize(
    ("target", "arch", "words"),
    [
        ("cuda", "sm_77", ["unknown architecture `sm_77`", "sm_75", "did you mean"]),
        ("rocm", "gfx906,gfx1030", ["cannot share", "gfx906 64", "gfx1030 32"]),
        ("rocm", "gfx916", ["unknown architecture"]),
        ("dtk", "gfx90b", ["unknown architecture", "gfx916"]),
    ],
)
def test_archs_that_there_are_not(target: str, arch: str, words: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        get_target(target, arch)
    for word in words:
        assert word in str(caught.value)


# ---------------------------------------------------------------- compilers


def _build(target: str, settings: Settings, kernel: str = KERNEL) -> Images:
    made = get_target(target)
    assert made.device is not None
    text = made.vocabulary.prelude + kernel
    try:
        return made.device.build(Module(text, (), "0"), made, settings)
    except HostError as error:
        pytest.skip(str(error))


def _kinds(images: Images) -> list[tuple[str, str]]:
    return [(image.kind, image.arch) for image in images.images]


def test_cuda_makes_cubins_and_ptx(settings: Settings) -> None:
    images = _build("cuda:sm_70,sm_90", settings)
    assert _kinds(images) == [("source", ""), ("cubin", "sm_70"), ("cubin", "sm_90"), ("ptx", "sm_90")]
    assert images.images[-1].data.endswith(b"\0")  # the driver reads a C string
    assert {(row.kernel, row.arch) for row in images.resources} == {
        ("tk_k0_0", "sm_70"),
        ("tk_k0_0", "sm_90"),
    }
    assert all(row.shared_bytes == 256 and row.spills == 0 and row.registers for row in images.resources)


def test_clusters_of_blocks(settings: Settings) -> None:
    """Their barrier and the addresses in other blocks are those of PTX, for sm_90 alone."""
    head = "__cluster_dims__(1, 1, 2) __launch_bounds__(64)"
    kernel = KERNEL.replace("__launch_bounds__(64)", head).replace("__syncthreads", "tk_cluster_barrier")
    images = _build("cuda:sm_90", settings, kernel.replace("s0[63 - i0]", "tk_in_block(s0, 1)[i0]"))
    for word in (b"barrier.cluster.arrive.release", b"barrier.cluster.wait.acquire", b"mapa.u64"):
        assert word in images.images[-1].data


def test_the_last_block(settings: Settings) -> None:
    """Fences of the whole device on both sides of the counter; nothing that was there before is read."""
    counted = KERNEL.replace(
        "__syncthreads();", "if (!tk_last_block((unsigned int *)b, 4, (unsigned int *)s0)) return;"
    )
    text = _build("cuda:sm_80", settings, counted).images[-1].data.decode()
    assert text.count("membar.gl") + text.count("fence.sc.gpu") + text.count("fence.acq_rel.gpu") == 2
    assert "atom.global.inc.u32" in text or "atom.inc.u32" in text


def test_nvcc_does_as_nvrtc(settings: Settings) -> None:
    nvcc = next((tool for tool in cuda_tools(settings) if "nvcc" in tool.tool.description), None)
    if nvcc is None:
        pytest.skip("there is no nvcc")
    arch = "sm_80"
    built = nvcc.tool.compile(cuda.CUDA.prelude + KERNEL, arch, True)
    assert [(image.kind, image.arch) for image in built.images] == [("cubin", arch), ("ptx", arch)]
    assert built.images[-1].data.endswith(b"\0")
    assert [(row.kernel, row.shared_bytes) for row in built.resources] == [("tk_k0_0", 256)]


def test_hip_makes_code_objects(settings: Settings) -> None:
    images = _build("rocm:gfx906,gfx90a", settings)
    assert _kinds(images) == [("source", ""), ("hsaco", "gfx906"), ("hsaco", "gfx90a")]
    assert all(image.data.startswith(b"\x7fELF") for image in images.images[1:])
    assert all(row.shared_bytes == 256 and row.spills == 0 and row.registers for row in images.resources)


def test_the_same_module_gives_the_same_bytes(tmp_path: Path) -> None:
    for target in ("cuda:sm_80", "rocm:gfx906"):
        made = [
            _build(target, load_settings({"HOME": "/", "TK_CACHE_DIR": str(tmp_path / target / number)}))
            for number in ("1", "2")
        ]
        assert made[0] == made[1]


@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx906"])
def test_a_text_that_is_rejected(target: str, settings: Settings) -> None:
    with pytest.raises(BuildError) as caught:
        _build(target, settings, 'extern "C" __global__ void tk_k0_0() { nonsense; }')
    assert "nonsense" in caught.value.why


def test_hygons_alias_is_noted(settings: Settings) -> None:
    images = _build("dtk:gfx916", settings)
    assert [image.arch for image in images.images] == ["", "gfx906"]
    assert "gfx916 was compiled as gfx906" in images.notes[0]
    assert not _build("dtk:gfx906", settings).notes


def test_no_compiler(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda, "cuda_tools", lambda _: ())
    monkeypatch.setattr(hip, "find_hipcc", lambda _: None)
    for target, words in (
        ("cuda", "nvidia-cuda-nvrtc-cu12"),
        ("rocm", "ROCm's hipcc"),
        ("dtk", "DTK's hipcc"),
    ):
        made = get_target(target)
        assert made.device is not None
        with pytest.raises(HostError) as caught:
            made.device.build(Module("", (), "0"), made, settings)
        assert words in caught.value.hint
        assert "install" in caught.value.hint


def test_a_compiler_that_does_not_know_an_arch(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = Tool("nvcc 13.0", "id", lambda _text, _arch, _more: Built((), ()))
    monkeypatch.setattr(cuda, "cuda_tools", lambda _: (CudaTool(tool, ("sm_75", "sm_90")),))
    hipcc = HipTool(replace(tool, description="hipcc 5.2"), lambda arch: arch in ("gfx906", "gfx90a"))
    monkeypatch.setattr(hip, "find_hipcc", lambda _: hipcc)
    for target, words in (
        (
            "cuda:sm_70",
            ["knows sm_70", "nvcc 13.0 knows sm_75, sm_90", "nvidia-cuda-nvrtc-cu12"],
        ),
        ("rocm:gfx942", ["does not know gfx942", "hipcc 5.2 knows gfx906, gfx90a"]),
    ):
        made = get_target(target)
        assert made.device is not None
        with pytest.raises(HostError) as caught:
            made.device.build(Module("", (), "0"), made, settings)
        for word in words:
            assert word in str(caught.value)


def test_hipcc_knows_what_it_has_libraries_for(settings: Settings) -> None:
    hipcc = find_hipcc(settings)
    if hipcc is None:
        pytest.skip("there is no hipcc")
    assert hipcc.knows("gfx906")
    assert not hipcc.knows("gfx916")


def test_what_was_built_comes_from_the_cache(settings: Settings) -> None:
    calls: list[str] = []

    def compile(_text: str, arch: str, more: bool) -> Built:  # noqa: A001 - as Tool has it
        calls.append(f"{arch} {more}")
        images = (Image("cubin", arch, arch.encode()), *((Image("ptx", arch, b"p"),) if more else ()))
        return Built(images, (Resource("k", arch, 7, 0, 4),))

    tool = Tool("t", "identity", compile)
    first = build_images("text", ("a", "b"), (tool, tool), settings, intermediate="b")
    assert sorted(calls) == ["a False", "b True"]
    assert build_images("text", ("a", "b"), (tool, tool), settings, intermediate="b") == first
    assert len(calls) == 2
    build_images("text", ("b",), (replace(tool, identity="another"),), settings)
    build_images("other", ("b",), (tool,), settings)
    assert len(calls) == 4


# ---------------------------------------------------------------- what they tell


def test_ptxas_log() -> None:
    log = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'tk_k1_0' for 'sm_70'
ptxas info    : Function properties for tk_k1_0
ptxas         .     72 bytes stack frame, 40 bytes spill stores, 44 bytes spill loads
ptxas info    : Used 96 registers, used 1 barriers, 72 bytes cumulative stack size, 8192 bytes smem
ptxas info    : Function properties for __internal_accurate_pow
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Compiling entry function 'tk_k0_0' for 'sm_70'
ptxas info    : Function properties for tk_k0_0
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, 376 bytes cmem[0]
"""
    assert ptxas_resources(log, "sm_70") == (
        Resource("tk_k0_0", "sm_70", 12, 0, 0, 0),
        Resource("tk_k1_0", "sm_70", 96, 40, 8192, 72),
    )


def _bundle(members: dict[str, bytes]) -> bytes:
    head = b"__CLANG_OFFLOAD_BUNDLE__" + struct.pack("<Q", len(members))
    size = len(head) + sum(24 + len(name) for name in members)
    body = b""
    for name, data in members.items():
        head += struct.pack("<QQQ", size + len(body), len(data), len(name)) + name.encode()
        body += data
    return head + body


def test_bundles() -> None:
    bundle = _bundle(
        {"host-x86_64": b"", "hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-": b"A", "hip-amdgcn--gfx906": b"B"}
    )
    assert unbundled(bundle, "gfx906") == b"B"
    assert unbundled(bundle, "gfx90a") == b"A"
    assert unbundled(b"\x7fELF...", "gfx906") == b"\x7fELF..."
    with pytest.raises(BuildError, match="no code object for gfx908"):
        unbundled(bundle, "gfx908")
    with pytest.raises(BuildError, match="no code object for gfx908"):
        unbundled(b"something else", "gfx908")


def _packed(value: object) -> bytes:
    """MessagePack with the long forms, which compilers use where values are large."""
    if isinstance(value, dict):
        items = (_packed(part) for pair in value.items() for part in pair)
        return b"\xde" + struct.pack(">H", len(value)) + b"".join(items)
    if isinstance(value, list):
        return b"\xdc" + struct.pack(">H", len(value)) + b"".join(map(_packed, value))
    if isinstance(value, str):
        return b"\xd9" + bytes([len(value)]) + value.encode()
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    assert isinstance(value, int)
    return b"\xce" + struct.pack(">I", value)


def _code_object(metadata: object) -> bytes:
    data = _packed(metadata)
    note = struct.pack("<III", 7, len(data), 32) + b"AMDGPU\0\0" + data + bytes(-len(data) % 4)
    section = struct.pack("<IIQQQQ", 0, 7, 0, 0, 64, len(note)) + bytes(24)
    header = bytearray(64)
    header[:4] = b"\x7fELF"
    struct.pack_into("<Q", header, 40, 64 + len(note))
    struct.pack_into("<HH", header, 58, 64, 1)
    return bytes(header) + note + section


def test_metadata_of_code_objects() -> None:
    kernels = [
        {
            ".name": name,
            ".vgpr_count": count,
            ".vgpr_spill_count": 3,
            ".group_segment_fixed_size": 70000,
            ".private_segment_fixed_size": 24,
            ".x": [True],
        }
        for name, count in (("tk_k1_0", 128), ("tk_k0_0", 7))
    ]
    assert resources(_code_object({"amdhsa.version": [1, 1], "amdhsa.kernels": kernels}), "gfx906") == (
        Resource("tk_k0_0", "gfx906", 7, 12, 70000, 24),
        Resource("tk_k1_0", "gfx906", 128, 12, 70000, 24),
    )


@pytest.mark.parametrize(("elements", "small"), [(132 * 256, True), (1 << 24, False)])
@pytest.mark.parametrize(("name", "arch"), [("cuda", "sm_90"), ("rocm", "gfx90a")])
def test_compilers_save_no_registers_for_blocks_that_a_small_grid_has_not(
    name: str, arch: str, elements: int, small: bool
) -> None:
    b = Builder("twice")
    x = b.input("x", (elements,), F32)
    func = b.finish([b.compute("y", (elements,), lambda i: x[i] * 2.0)])
    target = get_target(name, arch)
    scheduled = schedule_func(func, {}, target.facts, AnalyticChooser()).func
    printed = render_launches(lowered_for(scheduled, target), 0, target.vocabulary, target.facts)
    (launch,) = printed.launches
    blocks = f", {-(-launch.grid[0] // 132)}" if small and name == "cuda" else ""
    assert f"__launch_bounds__({launch.block[0]}{blocks})" in printed.text


def test_compilers_save_no_registers_for_blocks_that_have_none() -> None:
    """Four blocks for each unit, whose threads hold 64 sums: two fit without spills."""
    b = Builder("product")
    x, w = b.input("x", (16384, 64), F32), b.input("w", (64, 512), F32)
    func = b.finish([b.reduce("y", (16384, 512), (64,), lambda i, j, k: x[i, k] * w[k, j])])
    target = get_target("cuda", "sm_90")
    chooser = ReplayChooser({"y.tile": (16, 16, 8, 8, 16, 2, 1)}, AnalyticChooser())
    scheduled = schedule_func(func, {}, target.facts, chooser).func
    printed = render_launches(lowered_for(scheduled, target), 0, target.vocabulary, target.facts)
    assert printed.launches[0].grid == (4, 128, 1)
    assert "__launch_bounds__(256, 2)" in printed.text
