// c = a * b + c with an OpenCL kernel on the first device.
#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

enum { N = 1024 };

static const char *text =
    "kernel void multiply_add(global const float *a, global const float *b, global float *c) {"
    "    size_t i = get_global_id(0); c[i] = a[i] * b[i] + c[i]; }";

static void check(cl_int error, const char *what) {
    if (error == CL_SUCCESS) return;
    fprintf(stderr, "error: %s: OpenCL error %d\n", what, error);
    exit(1);
}

int main(void) {
    cl_int error;
    cl_platform_id platform;
    cl_device_id device;
    char name[200] = "";
    check(clGetPlatformIDs(1, &platform, NULL), "clGetPlatformIDs");
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL), "clGetDeviceIDs");
    check(clGetDeviceInfo(device, CL_DEVICE_NAME, sizeof name, name, NULL), "clGetDeviceInfo");
    printf("device: %s\n", name);
    cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    check(error, "clCreateContext");
    cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    check(error, "clCreateCommandQueue");
    cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    check(error, "clCreateProgramWithSource");
    check(clBuildProgram(program, 1, &device, "", NULL, NULL), "clBuildProgram");
    cl_kernel kernel = clCreateKernel(program, "multiply_add", &error);
    check(error, "clCreateKernel");
    float values[3][N];
    cl_mem buffers[3];
    for (int k = 0; k < 3; ++k) {
        for (int i = 0; i < N; ++i) values[k][i] = (float)(i % (7 + 2 * k));
        buffers[k] = clCreateBuffer(context, CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, sizeof values[k], values[k],
                                    &error);
        check(error, "clCreateBuffer");
        check(clSetKernelArg(kernel, (cl_uint)k, sizeof buffers[k], &buffers[k]), "clSetKernelArg");
    }
    size_t items = N;
    float result[N];
    check(clEnqueueNDRangeKernel(queue, kernel, 1, NULL, &items, NULL, 0, NULL, NULL), "clEnqueueNDRangeKernel");
    check(clEnqueueReadBuffer(queue, buffers[2], CL_TRUE, 0, sizeof result, result, 0, NULL, NULL),
          "clEnqueueReadBuffer");
    for (int i = 0; i < N; ++i)
        if (result[i] != values[0][i] * values[1][i] + values[2][i])
            return puts("the kernel computed wrong numbers"), 1;
    puts("kernel: right");
    return 0;
}
