"""Right kernels by hand for the emulator, with what they compute; the wrong ones: `wrong_kernels.py`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.support.emulation import Dim3

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Right:
    """A kernel `k` with its launch; `want` computes the last argument from the others."""

    text: str
    grid: Dim3
    block: Dim3
    arrays: tuple[Array, ...]
    want: Callable[..., Array]
    subgroup: int = 32


def _random(*shape: int) -> Array:
    return np.random.default_rng(sum(shape)).standard_normal(shape, dtype=np.float32)


def _ints(count: int, high: int) -> Array:
    return np.random.default_rng(count).integers(0, high, count, dtype=np.int32)


RIGHT: dict[str, Right] = {
    "matmul through shared tiles": Right(
        """\
// k: b0[3072] b1[6144] b2[2048]
extern "C" __global__ void __launch_bounds__(256) k(const float *b0, const float *b1, float *b2) {
  alignas(16) __shared__ float s0[256];
  alignas(16) __shared__ float s1[256];
  const int x = (int)threadIdx.x, y = (int)threadIdx.y;
  float sum = 0.0f;
  for (int i = 0; i < 6; ++i) {
    s0[y * 16 + x] = b0[((int)blockIdx.y * 16 + y) * 96 + i * 16 + x];
    s1[y * 16 + x] = b1[(i * 16 + y) * 64 + (int)blockIdx.x * 16 + x];
    __syncthreads();
    for (int j = 0; j < 16; ++j) sum += s0[y * 16 + j] * s1[j * 16 + x];
    __syncthreads();
  }
  b2[((int)blockIdx.y * 16 + y) * 64 + (int)blockIdx.x * 16 + x] = sum;
}
""",
        (4, 2, 1),
        (16, 16, 1),
        (_random(32, 96), _random(96, 64), np.empty((32, 64), np.float32)),
        lambda a, b: a @ b,
    ),
    "wide loads, two groups in turns": Right(
        """\
// k: b0[512] b1[512]
extern "C" __global__ void k(const float *__restrict__ b0, float *__restrict__ b1) {
  alignas(16) __shared__ float s0[2][128];
  const int x = (int)threadIdx.x;
  *(float4 *)(s0[0] + x * 4) = *(const float4 *)(b0 + x * 4);
  for (int i = 0; i < 4; ++i) {
    __syncthreads();
    if (i < 3) *(float4 *)(s0[(i + 1) % 2] + x * 4) = *(const float4 *)(b0 + (i + 1) * 128 + x * 4);
    for (int j = 0; j < 4; ++j) b1[i * 128 + x * 4 + j] = s0[i % 2][127 - x * 4 - j];
  }
}
""",
        (1, 1, 1),
        (32, 1, 1),
        (_random(4, 128), np.empty((4, 128), np.float32)),
        lambda a: a[:, ::-1],
    ),
    "sum of a row by shuffles, CUDA": Right(
        """\
// k: b0[320] b1[10]
extern "C" __global__ void k(const float *__restrict__ b0, float *__restrict__ b1) {
  const int row = (int)(blockIdx.x * blockDim.y + threadIdx.y);
  float sum = b0[row * 32 + (int)threadIdx.x];
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (threadIdx.x == 0) b1[row] = sum;
}
""",
        (5, 1, 1),
        (32, 2, 1),
        (_random(10, 32), np.empty(10, np.float32)),
        lambda a: a.sum(axis=1),
    ),
    "sum of a row by shuffles, HIP": Right(
        """\
// k: b0[192] b1[3]
extern "C" __global__ void k(const float *__restrict__ b0, float *__restrict__ b1) {
  float sum = b0[blockIdx.x * 64 + threadIdx.x];
  for (int step = 32; step > 0; step /= 2) sum += __shfl_down(sum, step);
  if (threadIdx.x == 0) b1[blockIdx.x] = sum;
}
""",
        (3, 1, 1),
        (64, 1, 1),
        (_random(3, 64), np.empty(3, np.float32)),
        lambda a: a.sum(axis=1),
        64,
    ),
    "running sum of a sub-group, values of 8 bytes": Right(
        """\
// k: b0[32] b1[32]
extern "C" __global__ void k(const double *__restrict__ b0, double *__restrict__ b1) {
  double sum = b0[threadIdx.x];
  for (int step = 1; step < 32; step *= 2) {
    const double before = __shfl_up_sync(0xffffffffu, sum, step);
    if ((int)threadIdx.x >= step) sum += before;
  }
  b1[threadIdx.x] = sum + 0.0 * __shfl_sync(0xffffffffu, sum, 31);
}
""",
        (1, 1, 1),
        (32, 1, 1),
        (_random(32).astype(np.float64), np.empty(32, np.float64)),
        np.cumsum,
    ),
    "votes": Right(
        """\
// k: b0[96] b1[9]
extern "C" __global__ void k(const int *__restrict__ b0, int *__restrict__ b1) {
  const int odd = b0[threadIdx.x] & 1, group = (int)threadIdx.x / 32;
  const unsigned int votes = __ballot_sync(0xffffffffu, odd);
  const int any = __any_sync(0xffffffffu, odd), all = __all_sync(0xffffffffu, odd);
  if (threadIdx.x % 32 == 5) {
    b1[group * 3] = (int)votes;
    b1[group * 3 + 1] = any;
    b1[group * 3 + 2] = all;
  }
}
""",
        (1, 1, 1),
        (96, 1, 1),
        (
            np.concatenate([_ints(32, 9), np.zeros(32, np.int32), np.ones(32, np.int32)]),
            np.empty(9, np.int32),
        ),
        lambda a: np.array(
            [
                [np.packbits(row & 1, bitorder="little").view(np.int32)[0], (row & 1).any(), (row & 1).all()]
                for row in a.reshape(3, 32).astype(np.uint8)
            ],
            np.int32,
        ).reshape(9),
    ),
    "histogram by atomics, in shared and global memory": Right(
        """\
// k: b0[1024] b1[8]
extern "C" __global__ void k(const int *__restrict__ b0, int *__restrict__ b1) {
  __shared__ int s0[8];
  if (threadIdx.x < 8) s0[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(s0 + b0[blockIdx.x * 128 + threadIdx.x], 1);
  __syncthreads();
  if (threadIdx.x < 8) atomicAdd(b1 + threadIdx.x, s0[threadIdx.x]);
}
""",
        (8, 1, 1),
        (128, 1, 1),
        (_ints(1024, 8), np.zeros(8, np.int32)),
        lambda a: np.bincount(a, minlength=8).astype(np.int32),
    ),
    "maximum by compare and swap": Right(
        """\
// k: b0[256] b1[1]
extern "C" __global__ void k(const float *__restrict__ b0, float *__restrict__ b1) {
  tk_atomic_max(b1, b0[blockIdx.x * 64 + threadIdx.x]);
}
""",
        (4, 1, 1),
        (64, 1, 1),
        (_random(256), np.zeros(1, np.float32)),
        lambda a: a.max(keepdims=True),
    ),
    "bytes of one word by different threads": Right(
        """\
// k: b0[64] b1[64]
extern "C" __global__ void k(const unsigned char *__restrict__ b0, unsigned char *__restrict__ b1) {
  __shared__ unsigned char s0[64];
  s0[threadIdx.x] = b0[threadIdx.x];
  __syncthreads();
  b1[threadIdx.x] = s0[threadIdx.x ^ 3];
}
""",
        (1, 1, 1),
        (64, 1, 1),
        (np.arange(64, dtype=np.uint8), np.empty(64, np.uint8)),
        lambda a: a[np.arange(64) ^ 3],
    ),
    "exchange within a sub-group behind its own barrier": Right(
        """\
// k: b0[64] b1[64]
extern "C" __global__ void k(const float *__restrict__ b0, float *__restrict__ b1) {
  __shared__ float s0[64];
  s0[threadIdx.x] = b0[threadIdx.x];
  __syncwarp();
  const float other = s0[threadIdx.x ^ 1];
  __syncwarp();
  s0[threadIdx.x] = other * 2.0f;
  __syncwarp();
  b1[threadIdx.x] = s0[threadIdx.x ^ 31];
}
""",
        (1, 1, 1),
        (64, 1, 1),
        (_random(64), np.empty(64, np.float32)),
        lambda a: 2 * a[np.arange(64) ^ 31 ^ 1],
    ),
    "threads that have nothing to do end before those that meet no barrier": Right(
        """\
// k: b0[100] b1[100]
extern "C" __global__ void k(const float *__restrict__ b0, float *__restrict__ b1) {
  const int i = (int)(blockIdx.x * 32 + threadIdx.x);
  if (i >= 100) return;
  float private_[8];
  for (int j = 0; j < 8; ++j) private_[j] = b0[i] * (float)j;
  b1[i] = private_[i % 8] + expf(b0[i]);
}
""",
        (4, 1, 1),
        (32, 1, 1),
        (_random(100), np.empty(100, np.float32)),
        lambda a: a * (np.arange(100) % 8) + np.exp(a),
    ),
    "copies that come when they are waited for": Right(
        """\
// k: b0[512] b1[512]
extern "C" __global__ void k(const float *__restrict__ b0, float *__restrict__ b1) {
  alignas(16) __shared__ float s0[2][128];
  const int x = (int)threadIdx.x;
  tk_async_copy<16>(s0[0] + x * 4, b0 + x * 4);
  tk_async_commit();
  for (int i = 0; i < 4; ++i) {
    if (i < 3) tk_async_copy<16>(s0[(i + 1) % 2] + x * 4, b0 + (i + 1) * 128 + x * 4);
    tk_async_commit();
    tk_async_wait<1>();
    __syncthreads();
    for (int j = 0; j < 4; ++j) b1[i * 128 + x * 4 + j] = s0[i % 2][127 - x * 4 - j];
    __syncthreads();
  }
}
""",
        (1, 1, 1),
        (32, 1, 1),
        (_random(4, 128), np.empty((4, 128), np.float32)),
        lambda a: a[:, ::-1],
    ),
    "products of bytes": Right(
        """\
// k: b0[64] b1[64] b2[16]
extern "C" __global__ void k(const int8_t *b0, const int8_t *b1, int *__restrict__ b2) {
  const int i = (int)threadIdx.x;
  int a, b;
  memcpy(&a, b0 + i * 4, 4);
  memcpy(&b, b1 + i * 4, 4);
  b2[i] = tk_dp4a(a, b, i);
}
""",
        (1, 1, 1),
        (16, 1, 1),
        (_ints(64, 256).astype(np.int8), _ints(65, 256)[:64].astype(np.int8), np.empty(16, np.int32)),
        lambda a, b: (
            (a.astype(np.int32) * b).reshape(16, 4).sum(axis=1, dtype=np.int32)
            + np.arange(16, dtype=np.int32)
        ),
    ),
    "one matrix product of a whole sub-group": Right(
        """\
// k: b0[128] b1[64] b2[128]
extern "C" __global__ void k(const float *b0, const float *b1, float *__restrict__ b2) {
  const int lane = (int)threadIdx.x;
  float a[4], b[2], c[4];
  for (int r = 0; r < 4; ++r) a[r] = b0[(lane / 4 + 8 * (r % 2)) * 8 + lane % 4 + 4 * (r / 2)];
  for (int r = 0; r < 2; ++r) b[r] = b1[(lane % 4 + 4 * r) * 8 + lane / 4];
  for (int r = 0; r < 4; ++r) c[r] = 1.0f;
  void *const operands[] = {a, b, c};
  tk_emu_together(
      [](void *const *const *lanes) {
        float x[16][8], y[8][8];
        for (int n = 0; n < 32; ++n)
          for (int r = 0; r < 4; ++r) {
            x[n / 4 + 8 * (r % 2)][n % 4 + 4 * (r / 2)] = ((const float *)lanes[n][0])[r];
            if (r < 2) y[n % 4 + 4 * r][n / 4] = ((const float *)lanes[n][1])[r];
          }
        for (int n = 0; n < 32; ++n)
          for (int r = 0; r < 4; ++r)
            for (int k = 0; k < 8; ++k)
              ((float *)lanes[n][2])[r] += x[n / 4 + 8 * (r / 2)][k] * y[k][n % 4 * 2 + r % 2];
      },
      operands, 1);
  for (int r = 0; r < 4; ++r) b2[(lane / 4 + 8 * (r / 2)) * 8 + lane % 4 * 2 + r % 2] = c[r];
}
""",
        (1, 1, 1),
        (32, 1, 1),
        (_random(16, 8), _random(8, 8), np.empty((16, 8), np.float32)),
        lambda a, b: a @ b + 1,
    ),
}
