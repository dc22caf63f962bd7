"""Wrong kernels by hand for the emulator, with what it finds in them."""

from __future__ import annotations

from dataclasses import dataclass

from tests.support.emulation import Dim3


@dataclass(frozen=True, slots=True)
class Wrong:
    """A kernel `k` on b0[64] and b1[64] of floats, 64 threads unless told, and parts of the message.

    In messages T3 stands for a thread of the first block, S3 for one of the same block.
    """

    text: str
    message: tuple[str, ...]
    grid: Dim3 = (1, 1, 1)
    block: Dim3 = (64, 1, 1)


def _wrong(*lines: str) -> str:
    body = "".join(f"  {line}\n" for line in lines)
    return f"""\
// k: b0[64] b1[64]
extern "C" __global__ void k(const float *__restrict__ b0, float *__restrict__ b1) {{
  const int x = (int)threadIdx.x;
{body}}}
"""


WRONG: dict[str, Wrong] = {
    "missing barrier before reading": Wrong(
        _wrong(
            "__shared__ float s0[64];",
            "s0[x] = b0[x];",
            "b1[x] = s0[x ^ 32] + s0[x ^ 1];",
        ),
        ("uninitialised: T0 reads shared s0[", "line 6: `b1[x] = s0["),
    ),
    "missing barrier, of a later round": Wrong(
        _wrong(
            "__shared__ float s0[64];",
            "for (int i = 0; i < 2; ++i) {",
            "  s0[x] = b0[x] + (float)i;",
            "  __syncthreads();",
            "  b1[x] = s0[63 - x];",
            "}",
        ),
        (
            "race: T32 reads shared s0[31], which S31 wrote with no barrier between (line 6: `s0[x] = b0[x]",
            "line 8: `b1[x] = s0[63 - x];`",
        ),
    ),
    "race on a shared element": Wrong(
        _wrong(
            "__shared__ float s0[64];",
            "s0[x / 2] = b0[x];",
            "__syncthreads();",
            "b1[x] = s0[x / 2];",
        ),
        ("race: T1 writes shared s0[0], which S0 wrote with no barrier between",),
    ),
    "barrier of a sub-group between threads of two": Wrong(
        _wrong(
            "__shared__ float s0[64];",
            "s0[x] = b0[x];",
            "__syncwarp();",
            "b1[x] = s0[x ^ 32];",
        ),
        (
            "T0 reads shared s0[32], which S32 wrote with no barrier between (line 5",
            "line 7: `b1[x] = s0[x ^ 32];`",
        ),
    ),
    "race on a global element, in a block": Wrong(
        _wrong(
            "b1[x / 2] = b0[x];",
        ),
        ("race: T1 writes b1[0], which S0 wrote with no barrier between; line 4: `b1[x / 2] = b0[x];`",),
    ),
    "race on a global element, of two blocks": Wrong(
        _wrong(
            "b1[x] = b0[x] + (float)blockIdx.x;",
        ),
        ("race: thread (", "writes b1[", "which block ("),
        grid=(2, 1, 1),
    ),
    "race of a reading block with a writing one": Wrong(
        _wrong(
            "const int i = (int)blockIdx.x * 32 + x;",
            "b1[i] = b0[i] + b1[(i + 32) % 64];",
        ),
        ("race: thread (", "b1[", "with no barrier between"),
        grid=(2, 1, 1),
        block=(32, 1, 1),
    ),
    "atomic and plain accesses": Wrong(
        _wrong(
            "if (x < 32) atomicAdd(b1, b0[x]);",
            "else b1[0] = b0[x];",
        ),
        ("race: T32 writes b1[0], which S31 updated",),
    ),
    "reads one past the end": Wrong(
        _wrong(
            "b1[x] = b0[x + 1];",
        ),
        ("out of bounds: T63 reads b0[64], outside of its 64 elements; line 4: `b1[x] = b0[x + 1];`",),
    ),
    "reads one before the start": Wrong(
        _wrong(
            "b1[x] = b0[x - 1];",
        ),
        ("reads b0[-1], outside of its 64 elements",),
    ),
    "writes one past the end": Wrong(
        _wrong(
            "b1[x + 1] = b0[x];",
        ),
        ("T63 writes b1[64], outside",),
    ),
    "writes far away": Wrong(
        _wrong(
            "b1[x * 1000000] = b0[x];",
        ),
        ("writes ", "out of bounds: thread (1, 0, 0)"),
    ),
    "shared array one past the end": Wrong(
        _wrong(
            "__shared__ float s0[64];",
            "__shared__ float s1[64];",
            "s0[x + 1] = b0[x];",
            "s1[x] = 0.0f;",
            "b1[x] = s1[x];",
        ),
        ("out of bounds: T63 uses element 64 of an array 'float",),
    ),
    "shared array past its end by a pointer": Wrong(
        _wrong(
            "__shared__ float s0[60];",
            "__shared__ float s1[64];",
            "float *at = s0 + x;",
            "*at = b0[x];",
            "s1[x] = 0.0f;",
            "b1[x] = s1[x];",
        ),
        ("out of bounds: T60 writes shared s0[60], outside of its 60 elements",),
    ),
    "past the end of an array that the launch asks for": Wrong(
        _wrong(
            "TK_SHARED_AT(float, s0, 60, 0);",
            "TK_SHARED_AT(float, s1, 64, 256);",
            "float *at = s0 + x;",
            "*at = b0[x];",
            "s1[x] = 0.0f;",
            "b1[x] = s1[x];",
        ),
        ("out of bounds: T60 writes shared s0[60], outside of its 60 elements",),
    ),
    "private array past its end": Wrong(
        _wrong(
            "float p[8];",
            "for (int i = 0; i < 8; ++i) p[i] = b0[i];",
            "b1[x] = p[x];",
        ),
        ("out of bounds: T8 uses element 8 of an array 'float",),
    ),
    "uninitialised shared memory": Wrong(
        _wrong(
            "__shared__ float s0[64];",
            "if (x < 63) s0[x] = b0[x];",
            "__syncthreads();",
            "b1[x] = s0[x];",
        ),
        (
            "uninitialised: T63 reads shared s0[63], which this block has not written",
            "line 7: `b1[x] = s0[x];`",
        ),
    ),
    "what an earlier block left in shared memory": Wrong(
        _wrong(
            "__shared__ float s0[64];",
            "if (blockIdx.x == 0) s0[x] = b0[x];",
            "__syncthreads();",
            "if (x == 0) b1[blockIdx.x] = s0[x];",
        ),
        ("uninitialised: thread (0, 0, 0) of block (",),
        grid=(4, 1, 1),
    ),
    "barrier that some threads do not reach": Wrong(
        _wrong(
            "__shared__ float s0[64];",
            "s0[x] = b0[x];",
            "if (x < 48) return;",
            "__syncthreads();",
            "b1[x] = s0[63 - x];",
        ),
        ("divergent barrier: T48 waits; line 7: `__syncthreads();`; S0 has ended",),
    ),
    "two barriers in two branches": Wrong(
        _wrong(
            "if (x < 32) {",
            "  __syncthreads();",
            "} else {",
            "  __syncthreads();",
            "}",
            "b1[x] = b0[x];",
        ),
        (
            "divergent barrier: thread (0, 0, 0)",
            "line 5: `__syncthreads();`",
            "waits elsewhere; line 7: `__syncthreads();`",
        ),
    ),
    "shuffle that some lanes do not reach": Wrong(
        _wrong(
            "float v = b0[x];",
            "if (x % 2 == 0) v = __shfl_xor_sync(0xffffffffu, v, 2);",
            "b1[x] = v;",
        ),
        ("divergent sub-group operation: thread (0, 0, 0)", "S1 has ended"),
    ),
    "shuffle from a lane that is none": Wrong(
        _wrong(
            "b1[x] = __shfl_xor_sync(0xffffffffu, b0[x], 16);",
        ),
        ("sub-group: T0 takes the value of lane 16, which takes no part",),
        block=(16, 1, 1),
    ),
    "misaligned wide load": Wrong(
        _wrong(
            "if (x < 15) tk_store_aligned(b1 + x * 4, tk_load_aligned<tk_f32x4>(b0 + x * 4 + 1));",
        ),
        (
            "misaligned: T0 uses b0[1], whose address is not a multiple of 16 bytes",
            "line 4: `if (x < 15)",
        ),
    ),
    "copy that nobody waits for": Wrong(
        _wrong(
            "__shared__ float s0[64];",
            "tk_async_copy<4>(s0 + x, b0 + x);",
            "tk_async_commit();",
            "tk_async_wait<1>();",
            "__syncthreads();",
            "b1[x] = s0[63 - x];",
        ),
        ("asynchronous copy: T0 reads shared s0[63] before what is copied there",),
    ),
    "copy that only the copying thread waits for": Wrong(
        _wrong(
            "__shared__ float s0[64];",
            "tk_async_copy<4>(s0 + x, b0 + x);",
            "tk_async_commit();",
            "tk_async_wait<0>();",
            "b1[x] = s0[63 - x];",
        ),
        ("T0 reads shared s0[63]",),
    ),
    "copy that is waited for behind the barrier": Wrong(
        _wrong(
            "__shared__ float s0[64];",
            "tk_async_copy<4>(s0 + x, b0 + x);",
            "tk_async_commit();",
            "__syncthreads();",
            "tk_async_wait<0>();",
            "if (x >= 32) b1[x] = s0[x - 32];",
        ),
        ("race: T32 reads shared s0[0], which S0 wrote with no barrier between (line 5: `tk_async_copy",),
    ),
}
