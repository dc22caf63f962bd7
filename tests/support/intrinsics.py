"""A tensor intrinsic for tests: the outer product of two vectors of four, added to a register tile."""

from __future__ import annotations

from compiler.schedule.tensor_intrinsics import TensorIntrinsic, register_tensor_intrinsic

OUTER_PRODUCT = register_tensor_intrinsic(
    TensorIntrinsic.from_text(
        "test.outer4x4",
        """
func outer(c: f32[4, 4] @register, a: f32[4], b: f32[4]) -> ()
  for i in 0..4
    for j in 0..4
      block outer(vi: spatial 4 = i, vj: spatial 4 = j)
        reads a[vi], b[vj]
        writes c[vi, vj]
        c[vi, vj] += a[vi] * b[vj]
""",
        """
func outer(c: f32[4, 4] @register, a: f32[4], b: f32[4]) -> ()
  for i in 0..4 unrolled
    c[i, ramp(0, 1, 4)] = c[i, ramp(0, 1, 4)] + broadcast(a[i], 4) * b[ramp(0, 1, 4)]
""",
    )
)
