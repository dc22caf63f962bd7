#include <hip/hip_runtime.h>

extern "C" __global__ void multiply_add(const float *a, const float *b, float *c) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    c[i] = a[i] * b[i] + c[i];
}
