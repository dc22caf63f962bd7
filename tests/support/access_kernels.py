"""Kernels by hand whose accesses were counted by hand: what `verify/access.py` has to find."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.emulation import Dim3


@dataclass(frozen=True, slots=True)
class Want:
    """Sums of a row: all requests of the grid, their sectors or wavefronts, the fewest, the worst request."""

    kind: str
    requests: float
    lanes: float
    units: float
    least: float
    worst: int = 0


@dataclass(frozen=True, slots=True)
class Known:
    """The body of a kernel with b0[4096] and b1[4096] of floats and s0[2048] of them shared; x is the thread.

    rows: by a part of the line's text, its counts. cluster: so many blocks along z form one.
    """

    body: tuple[str, ...]
    rows: tuple[tuple[str, Want], ...]
    grid: Dim3 = (1, 1, 1)
    block: Dim3 = (32, 1, 1)
    barriers: int = 0
    divergent: int = 0
    idle: float = 0.0
    waits: tuple[float, float] = (0, 0)
    cluster: int = 1

    def text(self, name: str) -> str:
        """The whole kernel."""
        body = "".join(f"  {line}\n" for line in self.body)
        dims = f"__cluster_dims__(1, 1, {self.cluster}) " if self.cluster > 1 else ""
        return f"""\
// {name}: b0[4096] b1[4096]
extern "C" __global__ void {dims}{name}(const float *__restrict__ b0, float *__restrict__ b1) {{
  alignas(16) __shared__ float s0[2048];
  const int x = (int)threadIdx.x;
{body}}}
"""


_TAIL = (
    "__syncthreads();",
    "b1[x] = s0[x ^ 1];",
)
"""Reads what was written, so that no compiler leaves it out."""

KNOWN: dict[str, Known] = {
    # 32 lanes of 4 bytes side by side: 128 bytes, 4 sectors.
    "coalesced": Known(
        ("b1[x] = b0[x];",),
        (("b1[x]", Want("load", 1, 32, 4, 4, 4)), ("b1[x]", Want("store", 1, 32, 4, 4, 4))),
    ),
    # From byte 4 on: 128 bytes in 5 sectors.
    "one element off": Known(
        ("b1[x] = b0[x + 1];",),
        (("b1[x]", Want("load", 1, 32, 5, 4, 5)),),
    ),
    # 128 bytes asked for, spread over 256.
    "stride 2": Known(
        ("b1[x] = b0[x * 2];",),
        (("b1[x]", Want("load", 1, 32, 8, 4, 8)),),
    ),
    # Each lane in a sector of its own.
    "stride 32": Known(
        ("b1[x * 32] = b0[x * 32];",),
        (("b1[x", Want("load", 1, 32, 32, 4, 32)), ("b1[x", Want("store", 1, 32, 32, 4, 32))),
    ),
    # All lanes want the same 4 bytes.
    "one element for all": Known(
        ("b1[x] = b0[blockIdx.x];",),
        (("b1[x]", Want("load", 1, 32, 1, 1, 1)),),
    ),
    # 512 bytes in one request of 16 sectors; shared memory takes 8 lanes at a time, so 4 wavefronts.
    "16 bytes a lane": Known(
        (
            "tk_store_aligned(s0 + x * 4, tk_load_aligned<tk_f32x4>(b0 + x * 4));",
            *_TAIL,
        ),
        (
            ("b0", Want("load", 1, 32, 16, 16, 16)),
            ("b0", Want("shared store", 1, 32, 4, 4, 1)),
            ("b1[x]", Want("shared load", 1, 32, 1, 1, 1)),
        ),
        barriers=1,
    ),
    # A compiler of C++ loads elements by themselves, besides; a GPU loads all of them at once.
    "elements of 16 bytes a lane": Known(
        (
            "tk_store_aligned(s0 + x * 4, tk_load_aligned<tk_f32x4>(b0 + x * 4));",
            "__syncthreads();",
            "tk_f32x4 sums = tk_splat<tk_f32x4>(0.0f);",
            "for (int i = 0; i < 3; ++i) {",
            "  const tk_f32x4 t = tk_load_aligned<tk_f32x4>(s0 + x * 4);",
            "  sums += t * tk_splat<tk_f32x4>(s0[i]);",
            "  const tk_f32x4 g = tk_load_aligned<tk_f32x4>(b0 + x * 4);",
            "  sums += g * tk_splat<tk_f32x4>(t[1] + g[2]);",
            "}",
            "tk_store_aligned(b1 + x * 4, sums);",
        ),
        (
            ("f32x4 t", Want("shared load", 3, 96, 12, 12, 1)),
            ("f32x4 g", Want("load", 3, 96, 48, 48, 16)),
            ("(s0[i])", Want("shared load", 3, 96, 3, 3, 1)),
            ("sums);", Want("store", 1, 32, 16, 16, 16)),
        ),
        barriers=1,
    ),
    # 8 bytes: 16 lanes at a time.
    "8 bytes a lane": Known(
        (
            "tk_store_aligned(s0 + x * 2, tk_load_aligned<tk_f32x2>(b0 + x * 2));",
            *_TAIL,
        ),
        (("b0", Want("load", 1, 32, 8, 8, 8)), ("b0", Want("shared store", 1, 32, 2, 2, 1))),
        barriers=1,
    ),
    # Lanes 0 and 16 in bank 0, words 0 and 32: two words of one bank.
    "conflict of 2 ways": Known(
        ("s0[x * 2] = b0[x];", "s0[x * 2 + 1] = b0[x];", *_TAIL),
        (("s0[x * 2] =", Want("shared store", 1, 32, 2, 1, 2)),),
        barriers=1,
    ),
    # Every lane in bank 0.
    "conflict of 32 ways": Known(
        (
            "for (int i = 0; i < 32; ++i) s0[i * 32 + x] = b0[x];",
            "__syncthreads();",
            "b1[x] = s0[x * 32];",
        ),
        (
            ("for", Want("load", 32, 1024, 128, 128, 4)),
            ("for", Want("shared store", 32, 1024, 32, 32, 1)),
            ("b1[x]", Want("shared load", 1, 32, 32, 1, 32)),
        ),
        barriers=1,
    ),
    # Lanes 0, 8, 16 and 24 in one bank, in a loop with no other in it.
    "conflict of 4 ways in a loop": Known(
        (
            "s0[x] = b0[x];",
            "s0[x + 32] = b0[x];",
            "s0[x + 64] = b0[x];",
            "s0[x + 96] = b0[x];",
            "__syncthreads();",
            "float sum = 0.0f;",
            "for (int i = 0; i < 4; ++i) {",
            "  sum += s0[x * 4 + i];",
            "}",
            "b1[x] = sum;",
        ),
        (("sum +=", Want("shared load", 4, 128, 16, 4, 4)),),
        barriers=1,
    ),
    # The same word for all is no conflict.
    "broadcast": Known(
        ("s0[x] = b0[x];", "__syncthreads();", "b1[x] = s0[5];"),
        (("b1[x]", Want("shared load", 1, 32, 1, 1, 1)),),
        barriers=1,
    ),
    # 16 lanes of 4 bytes, every other one: 64 bytes would fit in 2 sectors, 4 are touched.
    "half of the lanes idle": Known(
        ("if (x % 2 == 0) b1[x] = b0[x];",),
        (("b1[x]", Want("load", 1, 16, 4, 2, 4)), ("b1[x]", Want("store", 1, 16, 4, 2, 4))),
        divergent=1,
        idle=0.5,
    ),
    # Half of the lanes in each of four rounds, in turns; behind the loop all are together again.
    "lanes in turns": Known(
        (
            "float sum = 0.0f;",
            "for (int i = 0; i < 4; ++i) {",
            "  if ((x + i) % 2 == 0) sum += b0[i * 32 + x];",
            "}",
            "b1[x] = sum;",
        ),
        (("sum +=", Want("load", 4, 64, 16, 8, 4)), ("b1[x]", Want("store", 1, 32, 4, 4, 4))),
        divergent=4,
        idle=1 - (64 + 32) / (5 * 32),
    ),
    # One sub-group of two does something: nobody is idle, nothing diverges.
    "one sub-group alone": Known(
        ("if (x < 32) b1[x] = b0[x];",),
        (("b1[x]", Want("load", 1, 32, 4, 4, 4)),),
        block=(64, 1, 1),
    ),
    # A block of 8 threads: hardware runs 32 lanes.
    "a small block": Known(
        ("b1[x] = b0[x];",),
        (("b1[x]", Want("load", 1, 8, 1, 1, 1)),),
        block=(8, 1, 1),
        idle=0.75,
    ),
    # 20 blocks, of which 8 run: they stand for all.
    "a larger grid": Known(
        ("b1[(int)blockIdx.x * 64 + x] = b0[(int)blockIdx.x * 64 + x * 2];",),
        (("b1[", Want("load", 40, 1280, 320, 160, 8)), ("b1[", Want("store", 40, 1280, 160, 160, 4))),
        grid=(20, 1, 1),
        block=(64, 1, 1),
    ),
    "atomics": Known(
        ("atomicAdd((int *)(b1 + x % 4), 1);",),
        (("atomicAdd", Want("atomic", 1, 32, 1, 1, 1)),),
    ),
    # Each of four copies is waited for before anything is computed.
    "copies waited for at once": Known(
        (
            "float sum = 0.0f;",
            "for (int i = 0; i < 4; ++i) {",
            "  tk_async_copy<16>(s0 + x * 4, b0 + i * 128 + x * 4);",
            "  tk_async_commit();",
            "  tk_async_wait<0>();",
            "  __syncthreads();",
            "  for (int j = 0; j < 4; ++j) sum += s0[j * 32 + x];",
            "  __syncthreads();",
            "}",
            "b1[x] = sum;",
        ),
        (
            ("tk_async_copy", Want("copy", 4, 128, 64, 64, 16)),
            ("tk_async_copy", Want("shared store", 4, 128, 16, 16, 1)),
            ("sum += s0", Want("shared load", 16, 512, 16, 16, 1)),
        ),
        barriers=8,
        waits=(4, 4),
    ),
    # Half of the lanes copy zeros: they take part, and read nothing.
    "copies of nothing": Known(
        (
            "tk_async_copy_or_zero<4>(s0 + x, b0 + x, x < 16);",
            "tk_async_commit();",
            "tk_async_wait<0>();",
            "__syncthreads();",
            "b1[x] = s0[x];",
        ),
        (("x < 16", Want("copy", 1, 32, 2, 2, 2)), ("x < 16", Want("shared store", 1, 32, 1, 1, 1))),
        barriers=1,
        waits=(1, 1),
    ),
    # The next copy is on its way while the last one is used; the first has nothing to hide behind.
    "copies in a pipeline": Known(
        (
            "float sum = 0.0f;",
            "tk_async_copy<16>(s0 + x * 4, b0 + x * 4);",
            "tk_async_commit();",
            "for (int i = 0; i < 4; ++i) {",
            "  if (i < 3) tk_async_copy<16>(s0 + (i + 1) % 2 * 128 + x * 4, b0 + (i + 1) * 128 + x * 4);",
            "  tk_async_commit();",
            "  tk_async_wait<1>();",
            "  __syncthreads();",
            "  for (int j = 0; j < 4; ++j) sum += s0[i % 2 * 128 + j * 32 + x];",
            "  __syncthreads();",
            "}",
            "b1[x] = sum;",
        ),
        (("if (i < 3)", Want("copy", 3, 96, 48, 48, 16)),),
        barriers=8,
        waits=(4, 1),
    ),
    # Another block's memory has the banks of one's own; each waits for its own copies. Of 40 blocks
    # 12 run, 6 clusters, which stand for all.
    "shared memory of another block": Known(
        (
            "tk_async_copy<4>(s0 + x, b0 + x);",
            "tk_async_commit();",
            "s0[x + 32] = b0[x];",
            "tk_cluster_barrier();",
            "tk_async_wait<0>();",
            "tk_cluster_barrier();",
            "const float *const there = tk_in_block(s0, 1 - (int)blockIdx.z % 2);",
            "b1[(int)blockIdx.z * 32 + x] = there[x * 2];",
            "b1[(int)blockIdx.z * 32 + x] += tk_load_aligned<tk_f32x4>(there + x / 2 * 4)[1];",
            "tk_cluster_barrier();",
        ),
        (
            ("there[x * 2]", Want("shared load", 40, 1280, 80, 40, 2)),
            ("tk_f32x4", Want("shared load", 40, 1280, 160, 160, 1)),
        ),
        grid=(1, 1, 40),
        barriers=3,
        waits=(40, 40),
        cluster=2,
    ),
}

WIDE: dict[str, Known] = {
    # 64 lanes of 4 bytes: 8 sectors; shared memory has 32 banks, so 2 wavefronts.
    "coalesced": Known(
        ("s0[x] = b0[x];", *_TAIL),
        (("s0[x]", Want("load", 1, 64, 8, 8, 8)), ("s0[x]", Want("shared store", 1, 64, 2, 2, 1))),
        block=(64, 1, 1),
        barriers=1,
    ),
    # Lane 32 in bank 0 again, but of the other half: no conflict of lanes that go together.
    "conflict of 2 ways": Known(
        ("s0[x * 2] = b0[x];", "s0[x * 2 + 1] = b0[x];", *_TAIL),
        (("s0[x * 2] =", Want("shared store", 1, 64, 4, 2, 2)),),
        block=(64, 1, 1),
        barriers=1,
    ),
    "half a block": Known(
        ("b1[x] = b0[x];",),
        (("b1[x]", Want("load", 1, 32, 4, 4, 4)),),
        idle=0.5,
    ),
}
"""The same for sub-groups of 64 lanes."""
