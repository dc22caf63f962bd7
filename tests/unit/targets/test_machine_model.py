"""Small kernels with known instructions, compiled for real: what the model of their machine code says.

The oracle is the source: how often its loops run, computed in Python for the thread that is followed.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pytest

from compiler.core.device_code import MachineCode
from compiler.core.diagnostics import HostError
from compiler.core.settings import load_settings
from compiler.targets import cuda, hip
from compiler.targets.cuda_tools import CUBIN, cuda_tools
from compiler.targets.device import Resource
from compiler.targets.device_assembly import function_texts
from compiler.targets.hip_tools import HSACO, find_hipcc
from compiler.targets.machine_model import LaunchShape, machine_code

ARCHS = ("sm_80", "sm_90", "gfx90a")
CARDS = {**cuda.ARCHS, **hip.ARCHS}
GRID, BLOCK = (96, 4, 1), (64, 4, 1)

# How often a loop runs, in C and in Python at once: b, c are the block's place, x, y the thread's.
COUNTS = (
    "(b * 37 % 11 + x / 32 * 5) ^ 9",
    "b / 7 * 3 + c % 5 + 2",
    "((b << 3) + (c & 6)) / 49 + (y | 8)",
    "(b * 613 + 17) % 29 + (b > 40) * 7 + 1",
)
UNROLLED = 1000

COMMON = """
extern "C" __global__ void tk_k0_0(float* out, float a) {
  float v = out[threadIdx.x];
#pragma unroll 4
  for (int i = 0; i < 1000; ++i) v = fmaf(v, a, 1.5f);
  out[threadIdx.x] = v;
}
extern "C" __global__ void tk_k1_0(float* out, const float* in, int d) {
  float v = 0.f;
#pragma unroll 1
  for (int i = 0; i < 100; ++i) v += in[(unsigned)(i * 3 + threadIdx.x) / (unsigned)d];
  out[threadIdx.x] = v;
}
extern "C" __global__ void tk_k2_0(float* out, const float* in) {
  float v = 0.f;
#pragma unroll 1
  for (int i = 0; i < 100; ++i) v += in[(i * 5 + threadIdx.x) / 7];
  out[threadIdx.x] = v;
}
extern "C" __global__ void __launch_bounds__(1024) tk_k3_0(float* out, const float* in) {
  float v[200];
#pragma unroll
  for (int i = 0; i < 200; ++i) v[i] = in[i * 1024 + threadIdx.x];
#pragma unroll 1
  for (int k = 0; k < 100; ++k) {
#pragma unroll
    for (int i = 0; i < 200; ++i) v[i] = fmaf(v[i], v[(i + 7) % 200], in[k]);
  }
#pragma unroll
  for (int i = 0; i < 200; ++i) out[i * 1024 + threadIdx.x] = v[i];
}
"""
LAST = """
extern "C" __global__ void tk_k7_0(float* out, float* parts, unsigned* counters) {
  __shared__ unsigned told;
  parts[blockIdx.z * 64 + threadIdx.x] = out[threadIdx.x];
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) told = atomicInc(counters + blockIdx.x, gridDim.z - 1);
  __syncthreads();
  if (told != gridDim.z - 1) return;
  __threadfence();
  float v = 0.f;
#pragma unroll 1
  for (int i = 0; i < 32; ++i) v += parts[i * 64 + threadIdx.x];
  out[threadIdx.x] = v;
}
"""
STRIDED = """
extern "C" __global__ void tk_kNUMBER_0(float* out, const float* in) {
  __shared__ float s[4096];
  s[threadIdx.x] = in[threadIdx.x];
  __syncthreads();
  float v = 0.f;
#pragma unroll 1
  for (int i = 0; i < 32; ++i) v += s[threadIdx.x * STRIDE + i];
  out[threadIdx.x] = v;
}
"""
STRIDES = {4: 1, 6: 32}
PRODUCT = {
    CUBIN: """
extern "C" __global__ void tk_k5_0(float* out, const unsigned* in) {
  float d[4] = {0, 0, 0, 0};
  unsigned a[4] = {in[0], in[1], in[2], in[3]}, b[2] = {in[4], in[5]};
#pragma unroll 1
  for (int i = 0; i < 100; ++i)
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, "
        "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
""",
    HSACO: """
typedef float four __attribute__((ext_vector_type(4)));
extern "C" __global__ void tk_k5_0(float* out, const float* in) {
  four d = {0, 0, 0, 0};
#pragma unroll 1
  for (int i = 0; i < 100; ++i) d = __builtin_amdgcn_mfma_f32_16x16x4f32(in[0], in[1], d, 0, 0, 0);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
""",
}


def _counted(number: int, count: str) -> str:
    return f"""
extern "C" __global__ void tk_k{10 + number}_0(float* out, float a) {{
  const int b = blockIdx.x, c = blockIdx.y, x = threadIdx.x, y = threadIdx.y;
  float v = out[x];
  for (int i = 0; i < ({count}); ++i) v = fmaf(v, a, 1.5f);
  out[x] = v;
}}
"""


def _module(kind: str, arch: str) -> str:
    head = "#include <hip/hip_runtime.h>\n" if kind == HSACO else ""
    counted = "".join(_counted(number, count) for number, count in enumerate(COUNTS))
    strided = "".join(
        STRIDED.replace("NUMBER", str(number)).replace("STRIDE", str(stride))
        for number, stride in STRIDES.items()
    )
    return f"{head}{COMMON}{LAST}{strided}{'' if arch == 'gfx906' else PRODUCT[kind]}{counted}"


@lru_cache
def _built(arch: str) -> tuple[str, Mapping[str, str], Mapping[str, Resource]]:
    """Kind, texts and resources of the module; skips where a tool is missing."""
    settings = load_settings()
    kind = CUBIN if arch.startswith("sm_") else HSACO
    if kind == CUBIN:
        tool = next((one.tool for one in cuda_tools(settings) if arch in one.archs), None)
    else:
        found = find_hipcc(settings)
        tool = found.tool if found is not None and found.knows(arch) else None
    if tool is None:
        pytest.skip(f"no compiler for {arch} here")
    built = tool.compile(_module(kind, arch), arch, False)
    try:
        texts = function_texts(kind, arch, built.images[0].data, settings)
    except HostError as error:
        pytest.skip(f"no disassembler here: {error.what}")
    return kind, texts, {one.kernel: one for one in built.resources}


def model(
    arch: str, number: int, grid: tuple[int, ...] = GRID, block: tuple[int, ...] = BLOCK
) -> MachineCode:
    kind, texts, resources = _built(arch)
    name = f"tk_k{number}_0"
    taken = resources[name]
    shape = LaunchShape(grid, block, taken.registers or 0, taken.shared_bytes or 0)
    return machine_code(kind, arch, name, texts[name], shape)


@pytest.mark.parametrize("arch", ARCHS)
def test_a_loop_of_multiply_adds(arch: str) -> None:
    found = model(arch, 0)
    assert found.certain
    assert found.executed["fma"] == UNROLLED
    loop = found.innermost
    assert loop is not None
    assert loop.rounds * loop.units["fma"] == UNROLLED
    assert (loop.divisions, found.spills) == (0, 0)
    # Each multiply-add waits four cycles for the one before; eight sub-groups do not fill that on NVIDIA.
    assert found.microseconds is not None
    assert found.microseconds >= UNROLLED * 4e6 / CARDS[arch].hertz


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("number", [1, 2])
def test_a_division_in_the_innermost_loop(arch: str, number: int) -> None:
    found = model(arch, number)
    loop = found.innermost
    assert loop is not None
    assert found.certain
    assert loop.rounds == 100
    assert loop.divisions >= 1, "a compiler may take more than one"


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "gfx906"])
def test_spills_by_launch_bounds(arch: str) -> None:
    found = model(arch, 3, block=(1024, 1, 1))
    assert found.certain, "a counter that is spilled is read back"
    assert found.spills > 0
    loop = found.innermost
    assert loop is not None
    assert loop.spills > 0
    assert loop.rounds == 100
    assert found.executed["local"] >= loop.spills * loop.rounds


@pytest.mark.parametrize(
    ("arch", "operation"),
    [("sm_80", "mma.m16n8k8.tf32"), ("sm_90", "mma.m16n8k8.tf32"), ("gfx90a", "mfma.m16n16k4.f32")],
)
def test_matrix_units(arch: str, operation: str) -> None:
    found = model(arch, 5)
    assert found.executed["matrix"] == 100
    assert found.operations == (operation,)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("number", range(len(COUNTS)))
def test_rounds_are_those_of_the_source(arch: str, number: int) -> None:
    """Of the middle sub-group of the middle block: each integer instruction on the way counts."""
    lanes = CARDS[arch].lanes
    first = BLOCK[0] * BLOCK[1] // lanes // 2 * lanes
    place = {"b": GRID[0] // 2, "c": GRID[1] // 2, "x": first % BLOCK[0], "y": first // BLOCK[0]}
    rounds = eval(COUNTS[number].replace("/", "//"), {"__builtins__": {}}, place)
    assert rounds > 3
    found = model(arch, 10 + number)
    assert found.certain
    assert found.executed["fma"] == rounds


@pytest.mark.parametrize("arch", ARCHS)
def test_conflicts_in_shared_memory_cost_cycles(arch: str) -> None:
    one, many = (model(arch, number, block=(64, 1, 1)).innermost for number in STRIDES)
    assert one is not None
    assert many is not None
    assert one.rounds == many.rounds == 32
    assert many.cycles is not None
    assert one.cycles is not None
    assert many.limited_by == "shared"
    assert many.cycles > 2 * one.cycles


@pytest.mark.parametrize("arch", ARCHS)
def test_code_of_the_last_block_counts_once_for_each_tile(arch: str) -> None:
    """Four tiles, whose parts are all there at the same time: more of them are more that is made."""
    few, many = (model(arch, 7, grid=(4, 1, parts), block=(64, 1, 1)) for parts in (2, 32))
    assert few.certain
    assert few.microseconds is not None
    assert many.microseconds == pytest.approx(few.microseconds, rel=0.1)
    words = 4 * 64 * 4
    assert many.traffic_bytes - few.traffic_bytes == 30 * 2 * words, "a part is read and stored by each block"
    assert few.innermost is not None
    assert few.innermost.rounds == 32


@pytest.mark.parametrize("arch", ARCHS)
def test_a_time_grows_with_the_grid_and_falls_never_below_a_bound(arch: str) -> None:
    units = CARDS[arch].units
    small, large = (model(arch, 0, grid=(units * many, 1, 1)) for many in (1, 64))
    assert small.microseconds is not None
    assert large.microseconds is not None
    assert large.microseconds > 5 * small.microseconds
    peak = units * CARDS[arch].fma * CARDS[arch].hertz
    assert large.microseconds >= 1e6 * UNROLLED * 256 * units * 64 / peak
    assert small.units_used == 1.0
    assert model(arch, 0, grid=(1, 1, 1)).units_used == 1 / units
