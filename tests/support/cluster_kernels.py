"""Kernels of clusters of blocks by hand for the emulator: right ones, wrong ones with what it finds."""

from __future__ import annotations

import numpy as np

from tests.support.emulated_kernels import Array, Right
from tests.support.wrong_kernels import Wrong


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


RIGHT_CLUSTERS: dict[str, Right] = {
    "sum of the parts of four blocks": Right(
        """\
// k: b0[6144] b1[1536]
extern "C" __global__ void __cluster_dims__(1, 1, 4) __launch_bounds__(64) k(const float *b0, float *b1) {
  alignas(16) __shared__ float s0[128];
  const int x = (int)threadIdx.x, rank = (int)blockIdx.z % 4;
  const int column = (int)(blockIdx.y * 3 + blockIdx.x);
  for (int i = 0; i < 2; ++i) s0[i * 64 + x] = b0[((int)blockIdx.z * 6 + column) * 128 + i * 64 + x];
  tk_cluster_barrier();
  if (x < 32) {
    const float *const own = s0 + rank * 32 + x;
    float sum = 0.0f;
    for (int i = 0; i < 4; ++i) sum += *tk_in_block(own, i);
    b1[((int)blockIdx.z / 4 * 6 + column) * 128 + rank * 32 + x] = sum;
  }
  tk_cluster_barrier();
}
""",
        (3, 2, 8),
        (64, 1, 1),
        (_random(2, 4, 6, 128), np.empty((2, 6, 128), np.float32)),
        lambda a: a.sum(axis=1),
    ),
    "rounds of copies, from a neighbour": Right(
        """\
// k: b0[768] b1[768]
extern "C" __global__ void __cluster_dims__(1, 1, 2) k(const float *b0, float *b1) {
  TK_SHARED_AT(float, s0, 128, 0);
  TK_SHARED_AT(unsigned char, s1, 32, 512);
  const int x = (int)threadIdx.x, z = (int)blockIdx.z;
  const float *there = tk_in_block((const float *)s0, (z + 1) % 2);
  const unsigned char *factor = tk_in_block(s1, (z + 1) % 2);
  for (int i = 0; i < 3; ++i) {
    tk_async_copy<16>(s0 + x * 4, b0 + (i * 2 + z) * 128 + x * 4);
    tk_async_commit();
    s1[x] = (unsigned char)(x + i + z);
    tk_async_wait<0>();
    tk_cluster_barrier();
    const tk_f32x4 v = tk_load_aligned<tk_f32x4>(there + (31 - x) * 4);
    for (int j = 0; j < 4; ++j) b1[(i * 2 + z) * 128 + x * 4 + 3 - j] = v[j] * (float)factor[31 - x];
    tk_cluster_barrier();
  }
}
""",
        (1, 1, 2),
        (32, 1, 1),
        (_random(3, 2, 32, 4), np.empty((3, 2, 32, 4), np.float32)),
        lambda a: (a * np.indices(a.shape)[:3].sum(axis=0))[:, ::-1, ::-1, ::-1],
    ),
}


def _wrong(*lines: str, head: str = "__cluster_dims__(1, 1, 2) ") -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"""\
// k: b0[64] b1[64]
extern "C" __global__ void {head}k(const float *b0, float *b1) {{
  __shared__ float s0[32];
  const int x = (int)threadIdx.x, rank = (int)blockIdx.z;
{body}}}
"""


def _of(text: str, *message: str) -> Wrong:
    return Wrong(text, message, (1, 1, 2), (32, 1, 1))


_T0 = "thread (0, 0, 0) of block (0, 0, "
_WRITE = ("s0[x] = b0[rank * 32 + x];", "tk_cluster_barrier();")
_READ = "b1[rank * 32 + x] = tk_in_block(s0, 1 - rank)[x];"

WRONG_CLUSTERS: dict[str, Wrong] = {
    "cluster: read before the first barrier": _of(
        _wrong("s0[x] = b0[rank * 32 + x];", _READ, "tk_cluster_barrier();"),
        "uninitialised: T0 reads shared s0[0] of block (0, 0, 1), which that block has not written; line 6:",
    ),
    "cluster: barriers of blocks are none of the cluster": _of(
        _wrong(
            "s0[x] = b0[rank * 32 + x];",
            "__syncthreads();",
            "if (rank == 1) b1[x] = tk_in_block(s0, 0)[x];",
            "tk_cluster_barrier();",
        ),
        f"race: {_T0}1) reads shared s0[0] of block (0, 0, 0), which {_T0}0) wrote with no cluster barrier "
        "between (line 5: `s0[x] = b0[",
        "line 7: `if (rank == 1) b1[x]",
    ),
    "cluster: written again while another block reads": _of(
        _wrong(
            *_WRITE,
            "if (rank == 0) b1[x] = tk_in_block(s0, 1)[x];",
            "__syncthreads();",
            "if (rank == 1) s0[31 - x] = 0.0f;",
            "tk_cluster_barrier();",
        ),
        f"race: {_T0}1) writes shared s0[31], which thread (31, 0, 0) of block (0, 0, 0) read with no "
        "cluster barrier between (line 7: `if (rank == 0)",
        "line 9: `if (rank == 1) s0[31 - x] = 0.0f;`",
    ),
    "cluster: read while another block writes again": _of(
        _wrong(
            *_WRITE,
            "if (rank == 0) s0[x] = 0.0f;",
            "if (rank == 1) b1[x] = tk_in_block(s0, 0)[x];",
            "tk_cluster_barrier();",
        ),
        f"race: {_T0}1) reads shared s0[0] of block (0, 0, 0), which {_T0}0) wrote with no cluster barrier "
        "between (line 7:",
    ),
    "cluster: a copy that nobody has waited for": _of(
        _wrong(
            "tk_async_copy<4>(s0 + x, b0 + x);",
            "tk_async_commit();",
            "tk_cluster_barrier();",
            _READ,
            "tk_async_wait<0>();",
            "tk_cluster_barrier();",
        ),
        "asynchronous copy: T0 reads shared s0[0] of block (0, 0, 1) before what is copied there was waited",
    ),
    "cluster: a copy that is waited for behind the barrier": _of(
        _wrong(
            "tk_async_copy<4>(s0 + x, b0 + x);",
            "tk_async_commit();",
            "tk_cluster_barrier();",
            "tk_async_wait<0>();",
            "if (rank == 1) b1[x] = tk_in_block(s0, 0)[x];",
            "tk_cluster_barrier();",
        ),
        f"race: {_T0}1) reads shared s0[0] of block (0, 0, 0), which {_T0}0) wrote with no cluster barrier",
    ),
    "cluster: the last block may have ended": _of(
        _wrong(*_WRITE, "if (rank == 0) b1[x] = tk_in_block(s0, 1)[x];"),
        "ended block: thread (31, 0, 0) of block (0, 0, 0) reads shared s0[31] of block (0, 0, 1): "
        "a block of the cluster may have ended",
        "line 7: `if (rank == 0)",
    ),
    "cluster: the first block may have ended": _of(
        _wrong(*_WRITE, "if (rank == 1) b1[x] = tk_in_block(s0, 0)[x];"),
        f"ended block: {_T0}1) reads shared s0[0] of block (0, 0, 0): a block of the cluster may have ended",
        "line 7: `if (rank == 1)",
    ),
    "cluster: barrier that some threads do not reach": _of(
        _wrong("s0[x] = b0[x];", "if (x < 20) tk_cluster_barrier();", "b1[rank * 32 + x] = s0[x];"),
        "divergent barrier: T0 waits; line 6: `if (x < 20) tk_cluster_barrier();`; S20 has ended",
    ),
    "cluster: barrier that a block does not reach": _of(
        _wrong("if (rank == 0) tk_cluster_barrier();", "b1[rank * 32 + x] = b0[x];"),
        "divergent barrier: T0 waits; line 5: `if (rank == 0) tk_cluster_barrier();`; ",
        "; block (0, 0, 1) has ended",
    ),
    "cluster: two barriers in two branches": _of(
        _wrong(
            "if (rank == 0) tk_cluster_barrier();",
            "else tk_cluster_barrier();",
            "b1[rank * 32 + x] = b0[x];",
        ),
        "divergent barrier: T0 waits; line 5:",
        "block (0, 0, 1) waits elsewhere; line 6: `else tk_cluster_barrier();`",
    ),
    "cluster: barriers of a block and of the cluster": _of(
        _wrong(
            "if (x < 16) tk_cluster_barrier();",
            "else __syncthreads();",
            "b1[rank * 32 + x] = b0[x];",
        ),
        "divergent barrier: T16 waits; line 6: `else __syncthreads();`; S0 waits elsewhere; line 5:",
    ),
    "cluster: no such block": _of(
        _wrong(*_WRITE, "b1[rank * 32 + x] = tk_in_block(s0, rank + 1)[x];", "tk_cluster_barrier();"),
        f"cluster: {_T0}1) asks for block 2 of a cluster of 2; line 7:",
    ),
    "cluster: past the end of another block's array": _of(
        _wrong(*_WRITE, "b1[rank * 32 + x] = tk_in_block(s0, 1 - rank)[x + 1];", "tk_cluster_barrier();"),
        "out of bounds: thread (31, 0, 0) of block (0, 0, 0) reads shared s0[32] of block (0, 0, 1), outside "
        "of its 32 elements; line 7:",
    ),
    "cluster: what nobody wrote": _of(
        _wrong(
            "if (x < 31) s0[x] = b0[rank * 32 + x];",
            "tk_cluster_barrier();",
            _READ,
            "tk_cluster_barrier();",
        ),
        "uninitialised: thread (31, 0, 0) of block (0, 0, 0) reads shared s0[31] of block (0, 0, 1), ",
    ),
    "cluster: global memory in place of shared": _of(
        _wrong(*_WRITE, "b1[rank * 32 + x] = *tk_in_block(b0 + x, 1 - rank);", "tk_cluster_barrier();"),
        "cluster: T0 asks for what another block has in place of b0[0], which is no shared memory of its own",
    ),
    "cluster: writes to another block": _of(
        _wrong("tk_in_block(s0, 1 - rank)[x] = b0[x];", *_WRITE[1:], "b1[rank * 32 + x] = s0[x];"),
        "cluster: T0 writes shared s0[0] of block (0, 0, 1); the emulator knows reads of other blocks'",
    ),
    "cluster: misaligned wide load": _of(
        _wrong(
            *_WRITE,
            "if (x < 7) b1[x] = tk_load_aligned<tk_f32x4>(tk_in_block(s0, 1 - rank) + x * 4 + 1)[0];",
            "tk_cluster_barrier();",
        ),
        "misaligned: T0 uses shared s0 at byte 4 of block (0, 0, 1), whose address is not a multiple of 16",
    ),
    "cluster: a kernel without": _of(
        _wrong("tk_cluster_barrier();", "b1[rank * 32 + x] = b0[x];", head=""),
        "cluster: thread (0, 0, 0) of block (",
        "uses one, and the kernel has no __cluster_dims__; line 5: `tk_cluster_barrier();`",
    ),
}
