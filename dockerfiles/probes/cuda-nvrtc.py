"""Compile a CUDA kernel for one arch with NVRTC and check that the result is a cubin with that kernel."""

import ctypes
import sys
from pathlib import Path

TEXT = b"""
#include <cuda_fp16.h>
extern "C" __global__ void multiply_add(const float *a, const half *b, float *c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i] * __half2float(b[i]) + c[i];
}
"""


def main(arch: str) -> None:
    """Compile for `arch`."""
    (folder,) = Path(sys.prefix).glob("lib/python3*/site-packages/nvidia")
    nvrtc = ctypes.CDLL(str(folder / "cuda_nvrtc/lib/libnvrtc.so.12"))
    program = ctypes.c_void_p()
    options = [f"--gpu-architecture={arch}", f"--include-path={folder}/cuda_runtime/include"]
    words = (ctypes.c_char_p * len(options))(*(one.encode() for one in options))
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), TEXT, b"probe.cu", 0, None, None), "create")
    status = nvrtc.nvrtcCompileProgram(program, len(options), words)
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    log = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, log)
    check(status, f"compile: {log.value.decode()}")
    check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)), "cubin")
    cubin = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetCUBIN(program, cubin), "cubin")
    if not cubin.raw.startswith(b"\x7fELF") or b"multiply_add" not in cubin.raw:
        sys.exit("NVRTC gave no cubin with the kernel")
    print(f"cubin for {arch}: {size.value} bytes")


def check(status: int, what: str) -> None:
    """End the program when a call failed."""
    if status:
        sys.exit(f"error: NVRTC, {what} (status {status})")


main(sys.argv[1])
