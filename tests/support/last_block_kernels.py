"""Kernels by hand whose last block goes on, for the emulator: right ones, wrong ones and what it finds."""

from __future__ import annotations

import numpy as np

from tests.support.emulated_kernels import Right
from tests.support.wrong_kernels import Wrong

_PARTS = np.random.default_rng(1).standard_normal((4, 6, 64), dtype=np.float32)


def _right(*lines: str) -> Right:
    """Four parts of six tiles, three times two; the last block of each tile adds them up."""
    body = "".join(f"  {line}\n" for line in lines)
    return Right(
        f"""\
// k: b0[1536] b1[1536] b2[6] b3[384]
extern "C" __global__ void __launch_bounds__(64) k(const float *b0, float *b1, unsigned int *b2, float *b3) {{
  __shared__ unsigned int told[1];
  const int x = (int)threadIdx.x, tile = (int)(blockIdx.y * 3 + blockIdx.x), part = (int)blockIdx.z;
{body}  float sum = 0.0f;
  for (int i = 0; i < 4; ++i) sum += b1[(i * 6 + tile) * 64 + 63 - x];
  b3[tile * 64 + x] = sum;
}}
""",
        (3, 2, 4),
        (64, 1, 1),
        (_PARTS, np.empty_like(_PARTS), np.zeros(6, np.uint32), np.empty((6, 64), np.float32)),
        lambda parts, _passed, _counters: 2 * parts.sum(axis=0)[:, ::-1],
    )


_MAKE = "b1[(part * 6 + tile) * 64 + x] = 2.0f * b0[(part * 6 + tile) * 64 + x];"

RIGHT_LAST: dict[str, Right] = {
    "last block, as kernels say it": _right(_MAKE, "if (!tk_last_block(b2 + tile, 4, told)) return;"),
    "last block, fences of one thread": _right(
        _MAKE,
        "__syncthreads();",
        "if (x == 0) {",
        "  __threadfence();",
        "  told[0] = atomicInc(b2 + tile, 3);",
        "  __threadfence();",
        "}",
        "__syncthreads();",
        "if (told[0] != 3) return;",
    ),
    "last block, one thread makes all": _right(
        "if (x == 0) {",
        "  for (int i = 0; i < 64; ++i) {",
        "    const int at = (part * 6 + tile) * 64 + i;",
        "    b1[at] = 2.0f * b0[at];",
        "  }",
        "  __threadfence();",
        "  told[0] = atomicInc(b2 + tile, 3);",
        "  __threadfence();",
        "}",
        "__syncthreads();",
        "if (told[0] != 3) return;",
    ),
}

_LINES = (
    "b1[rank * 16 + x] = b0[x];",
    "__threadfence();",
    "__syncthreads();",
    "if (x == 0) told[0] = atomicInc((unsigned int *)b1 + 63, 1);",
    "__syncthreads();",
    "if (told[0] != 1) return;",
    "__threadfence();",
    "b1[32 + x] = b1[15 - x] + b1[31 - x];",
)


def _wrong(changes: dict[int, str], *message: str) -> Wrong:
    """Two blocks, with other lines in the place of some."""
    body = "".join(f"  {changes.get(number, line)}\n" for number, line in enumerate(_LINES))
    text = f"""\
// k: b0[64] b1[64]
extern "C" __global__ void k(const float *b0, float *b1) {{
  __shared__ unsigned int told[1];
  const int x = (int)threadIdx.x, rank = (int)blockIdx.z;
{body}}}
"""
    return Wrong(text, message, (1, 1, 2), (16, 1, 1))


_READS = "line 12: `b1[32 + x] = b1[15 - x] + b1[31 - x];`"

WRONG_LAST: dict[str, Wrong] = {
    "last block: no fence in front of the counter": _wrong(
        {1: ""}, "race: thread (", " reads b1[", " wrote with no fence of the device between; " + _READS
    ),
    "last block: no fence behind the counter": _wrong(
        {6: ""}, "race: thread (", " reads b1[", " wrote with no fence of the device between; " + _READS
    ),
    "last block: counted before all threads are done": _wrong(
        {2: ""}, "race: thread (", " reads b1[", " wrote with no barrier between; " + _READS
    ),
    "last block: told without a barrier": _wrong(
        {4: ""}, "race: thread (1, 0, 0) of block (0, 0, ", " reads shared told[0], which S0 wrote"
    ),
    "last block: a block that is not the last goes on": _wrong(
        {5: ""}, "race: thread (", " b1[", ", which block (0, 0, ", " with no barrier between"
    ),
    "last block: a counter that does not start again": _wrong(
        {3: _LINES[3].replace(", 1)", ", 5)")},
        "counter: b1[63] is left at 2: the next launch starts from there",
    ),
}
