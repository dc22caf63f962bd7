"""Load a shared library and check its kernel; small integers, so that any order of rounding is exact."""

import ctypes
import sys

N = 1000
Floats = ctypes.c_float * N


def main(path: str) -> None:
    """Check the library at `path`."""
    a, b, c = (Floats(*(i % m for i in range(N))) for m in (7, 11, 13))
    expected = [x * y + z for x, y, z in zip(a, b, c)]
    ctypes.CDLL(path).multiply_add(a, b, c, ctypes.c_long(N))
    if list(c) != expected:
        sys.exit("the kernel computed wrong numbers")
    print("kernel: right")


main(sys.argv[1])
