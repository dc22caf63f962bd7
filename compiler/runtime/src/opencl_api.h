// The part of OpenCL's interface that the runtime uses, reached by dlopen: a model library needs no OpenCL to load.
// Declarations after "The OpenCL Specification 3.0" and its header cl.h (Khronos); the functions up to version 2.1.
#ifndef TK_OPENCL_API_H
#define TK_OPENCL_API_H

#include <cstddef>
#include <cstdint>

namespace tk::cl {

typedef struct cl_platform_handle *Platform;
typedef struct cl_device_handle *DeviceId;
typedef struct cl_context_handle *Context;
typedef struct cl_queue_handle *CommandQueue;
typedef struct cl_program_handle *ProgramId;
typedef struct cl_kernel_handle *Kernel;
typedef struct cl_event_handle *Event;
typedef int32_t Status;
typedef uint32_t Uint;
typedef uint32_t Bool;
typedef uint64_t Bits;

constexpr Status kSuccess = 0;
constexpr Status kDeviceNotFound = -1;
constexpr Status kPlatformNotFound = -1001;  // cl_khr_icd: the loader knows no driver
constexpr Bits kDeviceTypeCpu = 1 << 1, kDeviceTypeGpu = 1 << 2, kDeviceTypeAccelerator = 1 << 3;
constexpr Bits kDeviceTypeAll = 0xffffffff;
constexpr Bits kSvmCoarseGrain = 1 << 0;
constexpr Bits kCorrectlyRoundedDivideSqrt = 1 << 7;  // CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT
constexpr Bits kMemReadWrite = 1 << 0;
constexpr Bits kOutOfOrder = 1 << 0, kProfiling = 1 << 1;

// Names of the questions, as in cl.h.
enum : Uint {
  kPlatformVersion = 0x0901,
  kPlatformName = 0x0902,
  kDeviceType = 0x1000,
  kDeviceVendorId = 0x1001,
  kDeviceMaxWorkGroupSize = 0x1004,
  kDeviceSingleFpConfig = 0x101b,
  kDeviceLocalMemSize = 0x1023,
  kDeviceCompilerAvailable = 0x1028,
  kDeviceName = 0x102b,
  kDriverVersion = 0x102d,
  kDeviceVersion = 0x102f,
  kDeviceSvmCapabilities = 0x1053,
  kDeviceIlVersion = 0x105b,
  kQueueContext = 0x1090,
  kQueueProperties = 0x1093,
  kProgramBinarySizes = 0x1165,
  kProgramBinaries = 0x1166,
  kProgramBuildLog = 0x1183,
  kProfilingCommandEnd = 0x1283,
};

#define TK_OPENCL_FUNCTIONS(X)                                                                                        \
  X(clGetPlatformIDs, Status, (Uint, Platform *, Uint *))                                                             \
  X(clGetPlatformInfo, Status, (Platform, Uint, size_t, void *, size_t *))                                            \
  X(clGetDeviceIDs, Status, (Platform, Bits, Uint, DeviceId *, Uint *))                                               \
  X(clGetDeviceInfo, Status, (DeviceId, Uint, size_t, void *, size_t *))                                              \
  X(clCreateContext, Context, (const intptr_t *, Uint, const DeviceId *, void *, void *, Status *))                   \
  X(clReleaseContext, Status, (Context))                                                                              \
  X(clCreateCommandQueue, CommandQueue, (Context, DeviceId, Bits, Status *))                                          \
  X(clRetainCommandQueue, Status, (CommandQueue))                                                                     \
  X(clReleaseCommandQueue, Status, (CommandQueue))                                                                    \
  X(clGetCommandQueueInfo, Status, (CommandQueue, Uint, size_t, void *, size_t *))                                    \
  X(clCreateProgramWithSource, ProgramId, (Context, Uint, const char **, const size_t *, Status *))                   \
  X(clCreateProgramWithBinary, ProgramId,                                                                             \
    (Context, Uint, const DeviceId *, const size_t *, const unsigned char **, Status *, Status *))                    \
  X(clBuildProgram, Status, (ProgramId, Uint, const DeviceId *, const char *, void *, void *))                        \
  X(clGetProgramInfo, Status, (ProgramId, Uint, size_t, void *, size_t *))                                            \
  X(clGetProgramBuildInfo, Status, (ProgramId, DeviceId, Uint, size_t, void *, size_t *))                             \
  X(clReleaseProgram, Status, (ProgramId))                                                                            \
  X(clCreateKernel, Kernel, (ProgramId, const char *, Status *))                                                      \
  X(clReleaseKernel, Status, (Kernel))                                                                                \
  X(clEnqueueNDRangeKernel, Status,                                                                                   \
    (CommandQueue, Kernel, Uint, const size_t *, const size_t *, const size_t *, Uint, const Event *, Event *))       \
  X(clEnqueueMarkerWithWaitList, Status, (CommandQueue, Uint, const Event *, Event *))                                \
  X(clGetEventProfilingInfo, Status, (Event, Uint, size_t, void *, size_t *))                                         \
  X(clReleaseEvent, Status, (Event))                                                                                  \
  X(clFinish, Status, (CommandQueue))

// Of OpenCL 2.0 and 2.1: null in the loader of an older one.
#define TK_OPENCL_NEW_FUNCTIONS(X)                                                                                    \
  X(clSVMAlloc, void *, (Context, Bits, size_t, Uint))                                                                \
  X(clSVMFree, void, (Context, void *))                                                                               \
  X(clSetKernelArgSVMPointer, Status, (Kernel, Uint, const void *))                                                   \
  X(clEnqueueSVMMemcpy, Status, (CommandQueue, Bool, void *, const void *, size_t, Uint, const Event *, Event *))     \
  X(clCreateProgramWithIL, ProgramId, (Context, const void *, size_t, Status *))

#define TK_OPENCL_POINTER(name, result, arguments) result(*name) arguments = nullptr;
struct Api {
  TK_OPENCL_FUNCTIONS(TK_OPENCL_POINTER)
  TK_OPENCL_NEW_FUNCTIONS(TK_OPENCL_POINTER)
};
#undef TK_OPENCL_POINTER

}  // namespace tk::cl

#endif
