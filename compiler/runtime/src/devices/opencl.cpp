// OpenCL, reached through the loader of the machine (libOpenCL.so.1): any driver that has coarse-grained shared
// virtual memory, which OpenCL 2.0 asks of all and 3.0 leaves open.

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device.h"
#include "error.h"
#include "opencl_api.h"
#include "opencl_choice.h"
#include "program_cache.h"

namespace tk {
namespace {

constexpr cl::Uint kAlignment = 128;  // the largest vector of OpenCL C

// ---------------------------------------------------------------- statuses

const char *name_of(cl::Status status) {
  switch (status) {
    case -1: return "CL_DEVICE_NOT_FOUND";
    case -2: return "CL_DEVICE_NOT_AVAILABLE";
    case -3: return "CL_COMPILER_NOT_AVAILABLE";
    case -4: return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
    case -5: return "CL_OUT_OF_RESOURCES";
    case -6: return "CL_OUT_OF_HOST_MEMORY";
    case -7: return "CL_PROFILING_INFO_NOT_AVAILABLE";
    case -11: return "CL_BUILD_PROGRAM_FAILURE";
    case -14: return "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST";
    case -30: return "CL_INVALID_VALUE";
    case -34: return "CL_INVALID_CONTEXT";
    case -36: return "CL_INVALID_COMMAND_QUEUE";
    case -42: return "CL_INVALID_BINARY";
    case -45: return "CL_INVALID_PROGRAM_EXECUTABLE";
    case -46: return "CL_INVALID_KERNEL_NAME";
    case -52: return "CL_INVALID_KERNEL_ARGS";
    case -54: return "CL_INVALID_WORK_GROUP_SIZE";
    case -1001: return "CL_PLATFORM_NOT_FOUND_KHR";
    default: return "see CL/cl.h";
  }
}

tk_status refused(const char *function, cl::Status status) {
  const tk_status kind = status == -4 || status == -5 || status == -6 ? TK_ERR_MEMORY : TK_ERR_DEVICE;
  return fail(kind, "the OpenCL driver refuses %s: status %d (%s)", function, status, name_of(status));
}

#define TK_CALL(function, ...) \
  if (const cl::Status status = api.function(__VA_ARGS__)) return refused(#function, status)

// ---------------------------------------------------------------- the device and its program

class OpenClDevice final : public Device {
 public:
  OpenClDevice(const cl::Api &api, const Program &program, const cl::Found &found)
      : api(api), found_(found), title_(found.name + " (" + found.platform + ")") {
    functions_.assign(program.functions, program.functions + program.n_functions);
  }
  ~OpenClDevice() override {
    if (program_ != nullptr) api.clReleaseProgram(program_);
    if (context_ != nullptr) api.clReleaseContext(context_);
  }
  OpenClDevice(const OpenClDevice &) = delete;
  OpenClDevice &operator=(const OpenClDevice &) = delete;

  tk_status open(const Program &program);
  const char *describe() const override { return title_.c_str(); }
  DLDevice dlpack() const override { return {kOpenClOfDlpack, 0}; }
  void *native_context() const override { return context_; }
  tk_status allocate(int64_t bytes, void **memory) override {
    *memory = api.clSVMAlloc(context_, cl::kMemReadWrite, static_cast<size_t>(std::max<int64_t>(bytes, 1)), kAlignment);
    if (*memory != nullptr) return TK_OK;
    return fail(TK_ERR_MEMORY, "%s has no memory left for %lld bytes", title_.c_str(), static_cast<long long>(bytes));
  }
  void release(void *memory) override {
    if (memory != nullptr) api.clSVMFree(context_, memory);
  }
  tk_status open_queue(const Stream &stream, Queue **queue) override;

  // After kernels ran: some drivers finish compiling when a kernel is first launched.
  void keep_binary();

  const cl::Api &api;

 private:
  static constexpr DLDeviceType kOpenClOfDlpack = static_cast<DLDeviceType>(4);  // kDLOpenCL of dlpack.h

  tk_status make_program(const Program &program);
  bool load_binary(const std::string &binary);
  tk_status build(const char *what);
  std::string binary() const;

  const cl::Found found_;
  const std::string title_;
  std::string options_, key_;
  std::vector<std::string> functions_;
  cl::Context context_ = nullptr;
  cl::ProgramId program_ = nullptr;
  uint64_t local_bytes_ = 0;  // that a work-group may share
  std::mutex keeping_;
  bool to_keep_ = false;

  friend class OpenClQueue;
};

tk_status OpenClDevice::open(const Program &program) {
  cl::Status status = cl::kSuccess;
  context_ = api.clCreateContext(nullptr, 1, &found_.device, nullptr, nullptr, &status);
  if (context_ == nullptr) return refused("clCreateContext", status);
  local_bytes_ = cl::asked<uint64_t>(api, found_.device, cl::kDeviceLocalMemSize, 0);
  options_ = "-cl-std=CL1.2";
  // Without this option division may be off by 2.5 ulp, which the reference is not.
  if ((cl::asked<cl::Bits>(api, found_.device, cl::kDeviceSingleFpConfig, 0) & cl::kCorrectlyRoundedDivideSqrt) != 0)
    options_ += " -cl-fp32-correctly-rounded-divide-sqrt";
  return make_program(program);
}

const Image *image_of(const Program &program, const char *kind) {
  for (int32_t i = 0; i < program.n_images; ++i)
    if (std::strcmp(program.images[i].kind, kind) == 0) return &program.images[i];
  return nullptr;
}

// PoCL has a cache of its own, by kernel and shape of its work-groups; for a binary it compiles every kernel a second
// time, for work-groups of any shape, and then launches none of these.
bool keeps_programs(const cl::Found &found) { return found.platform == "Portable Computing Language"; }

// From a binary that came with the library or was kept, else from source, else from SPIR-V.
tk_status OpenClDevice::make_program(const Program &program) {
  const Image *native = image_of(program, "opencl-binary"), *source = image_of(program, "source");
  const Image *spirv = image_of(program, "spirv");
  if (native != nullptr &&
      load_binary(std::string(reinterpret_cast<const char *>(native->data), static_cast<size_t>(native->bytes))))
    return TK_OK;
  const bool compiles = cl::asked<cl::Bool>(api, found_.device, cl::kDeviceCompilerAvailable, 0) != 0;
  const Image *image = source != nullptr && (compiles || spirv == nullptr) ? source : spirv;
  if (image == nullptr) return fail(TK_ERR_LIBRARY, "the library holds no kernels for %s", title_.c_str());
  const bool takes_spirv =
      api.clCreateProgramWithIL != nullptr && !cl::told(api, found_.device, cl::kDeviceIlVersion).empty();
  if (image == spirv && !takes_spirv)
    return fail(TK_ERR_DEVICE,
                "the OpenCL driver of %s takes no SPIR-V, and has no compiler for source; install the whole driver",
                title_.c_str());
  const std::string text(reinterpret_cast<const char *>(image->data), static_cast<size_t>(image->bytes));
  key_ =
      program_key({image->kind, text, options_, found_.platform, found_.version, found_.name,
                   cl::told(api, found_.device, cl::kDeviceVersion), cl::told(api, found_.device, cl::kDriverVersion)});
  std::string kept;
  if (find_program(key_, &kept) && load_binary(kept)) return TK_OK;
  const char *const begin = text.data();
  const size_t bytes = text.size();
  cl::Status status = cl::kSuccess;
  program_ = image == spirv
                 ? api.clCreateProgramWithIL(context_, begin, bytes, &status)
                 : api.clCreateProgramWithSource(context_, 1, const_cast<const char **>(&begin), &bytes, &status);
  if (program_ == nullptr)
    return refused(image == spirv ? "clCreateProgramWithIL" : "clCreateProgramWithSource", status);
  to_keep_ = !keeps_programs(found_);
  return build(image->kind);
}

bool OpenClDevice::load_binary(const std::string &binary) {
  const unsigned char *data = reinterpret_cast<const unsigned char *>(binary.data());
  const size_t bytes = binary.size();
  cl::Status taken = cl::kSuccess, status = cl::kSuccess;
  program_ = api.clCreateProgramWithBinary(context_, 1, &found_.device, &bytes, &data, &taken, &status);
  if (program_ != nullptr && status == cl::kSuccess && taken == cl::kSuccess &&
      api.clBuildProgram(program_, 1, &found_.device, options_.c_str(), nullptr, nullptr) == cl::kSuccess)
    return true;
  if (program_ != nullptr) api.clReleaseProgram(program_);
  program_ = nullptr;
  return false;
}

tk_status OpenClDevice::build(const char *what) {
  const cl::Status status = api.clBuildProgram(program_, 1, &found_.device, options_.c_str(), nullptr, nullptr);
  if (status == cl::kSuccess) return TK_OK;
  const std::string log = cl::text_of([&](size_t room, void *to, size_t *bytes) {
    return api.clGetProgramBuildInfo(program_, found_.device, cl::kProgramBuildLog, room, to, bytes);
  });
  return fail(TK_ERR_DEVICE, "the OpenCL compiler of %s refuses the kernels (%s), status %d (%s):\n%s", title_.c_str(),
              what, status, name_of(status), log.c_str());
}

std::string OpenClDevice::binary() const {
  size_t bytes = 0;
  if (api.clGetProgramInfo(program_, cl::kProgramBinarySizes, sizeof bytes, &bytes, nullptr) != cl::kSuccess)
    return std::string();
  std::string content(bytes, '\0');
  unsigned char *to = reinterpret_cast<unsigned char *>(&content[0]);
  if (api.clGetProgramInfo(program_, cl::kProgramBinaries, sizeof to, &to, nullptr) != cl::kSuccess)
    return std::string();
  return content;
}

void OpenClDevice::keep_binary() {
  const std::lock_guard<std::mutex> guard(keeping_);
  if (!to_keep_) return;
  to_keep_ = false;
  keep_program(key_, binary());
}

// ---------------------------------------------------------------- a queue

class OpenClQueue final : public Queue {
 public:
  explicit OpenClQueue(OpenClDevice *device) : api(device->api), device_(device), kernels_(device->functions_.size()) {}
  ~OpenClQueue() override {
    for (const cl::Event event : marks_)
      if (event != nullptr) api.clReleaseEvent(event);
    for (const cl::Kernel kernel : kernels_)
      if (kernel != nullptr) api.clReleaseKernel(kernel);
    if (queue_ != nullptr) api.clReleaseCommandQueue(queue_);
  }
  OpenClQueue(const OpenClQueue &) = delete;
  OpenClQueue &operator=(const OpenClQueue &) = delete;

  tk_status open(void *stream);
  tk_status upload(void *to, const void *from, int64_t bytes) override { return copy(to, from, bytes); }
  tk_status download(void *to, const void *from, int64_t bytes) override { return copy(to, from, bytes); }
  tk_status copy(void *to, const void *from, int64_t bytes) override {
    if (bytes == 0) return TK_OK;
    TK_CALL(clEnqueueSVMMemcpy, queue_, 0, to, from, static_cast<size_t>(bytes), 0, nullptr, nullptr);
    return TK_OK;
  }
  tk_status launch(const Launch &launch, void *const *args, int32_t n_args) override;
  tk_status mark(int32_t number) override;
  tk_status elapsed(int32_t from, int32_t to, int64_t *nanoseconds) override;
  tk_status finish() override {
    TK_CALL(clFinish, queue_);
    if (launched_) device_->keep_binary();
    return TK_OK;
  }

 private:
  tk_status kernel(int32_t function, cl::Kernel *kernel);
  tk_status time_of(int32_t number, uint64_t *nanoseconds);

  const cl::Api &api;
  OpenClDevice *const device_;
  cl::CommandQueue queue_ = nullptr;
  bool timed_ = true;  // the queue notes when its commands end; else times are taken by waiting for them
  std::vector<std::chrono::steady_clock::time_point> waited_;
  std::vector<cl::Kernel> kernels_;  // arguments belong to a kernel object: each queue has its own
  std::vector<cl::Event> marks_;
  bool launched_ = false;
};

tk_status OpenClQueue::open(void *stream) {
  if (stream == nullptr) {
    cl::Status status = cl::kSuccess;
    queue_ = api.clCreateCommandQueue(device_->context_, device_->found_.device, cl::kProfiling, &status);
    return queue_ != nullptr ? TK_OK : refused("clCreateCommandQueue", status);
  }
  const cl::CommandQueue given = static_cast<cl::CommandQueue>(stream);
  cl::Context context = nullptr;
  cl::Bits properties = 0;
  TK_CALL(clGetCommandQueueInfo, given, cl::kQueueContext, sizeof context, &context, nullptr);
  TK_CALL(clGetCommandQueueInfo, given, cl::kQueueProperties, sizeof properties, &properties, nullptr);
  if (context != device_->context_)
    return fail(TK_ERR_ARGUMENT,
                "the queue belongs to another OpenCL context than the model; make it in tk_model_native_context_v1(), or "
                "leave the stream null");
  if ((properties & cl::kOutOfOrder) != 0)
    return fail(TK_ERR_ARGUMENT, "the queue may change the order of its work, and launches rely on it; make one without "
                                 "CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE");
  timed_ = (properties & cl::kProfiling) != 0;
  TK_CALL(clRetainCommandQueue, given);
  queue_ = given;
  return TK_OK;
}

tk_status OpenClQueue::kernel(int32_t function, cl::Kernel *kernel) {
  const size_t index = static_cast<size_t>(function);
  if (index >= kernels_.size())
    return fail(TK_ERR_LIBRARY, "a launch names function %d of %zu", function, kernels_.size());
  if (kernels_[index] == nullptr) {
    cl::Status status = cl::kSuccess;
    kernels_[index] = api.clCreateKernel(device_->program_, device_->functions_[index].c_str(), &status);
    if (kernels_[index] == nullptr) return refused("clCreateKernel", status);
  }
  *kernel = kernels_[index];
  return TK_OK;
}

tk_status OpenClQueue::launch(const Launch &launch, void *const *args, int32_t n_args) {
  cl::Kernel found = nullptr;
  if (const tk_status status = kernel(launch.function, &found)) return status;
  if (launch.shared_bytes > device_->local_bytes_)
    return fail(TK_ERR_DEVICE, "a kernel needs %u bytes of local memory, and %s has %llu; choose another by TK_DEVICE",
                launch.shared_bytes, device_->describe(), static_cast<unsigned long long>(device_->local_bytes_));
  for (int32_t i = 0; i < n_args; ++i) TK_CALL(clSetKernelArgSVMPointer, found, static_cast<cl::Uint>(i), args[i]);
  size_t items[3], group[3];
  for (int i = 0; i < 3; ++i) {
    group[i] = launch.block[i];
    items[i] = size_t{launch.grid[i]} * launch.block[i];
  }
  TK_CALL(clEnqueueNDRangeKernel, queue_, found, 3, nullptr, items, group, 0, nullptr, nullptr);
  launched_ = true;
  return TK_OK;
}

tk_status OpenClQueue::mark(int32_t number) {
  const size_t index = static_cast<size_t>(number);
  if (!timed_) {
    TK_CALL(clFinish, queue_);
    if (index >= waited_.size()) waited_.resize(index + 1);
    waited_[index] = std::chrono::steady_clock::now();
    return TK_OK;
  }
  if (index >= marks_.size()) marks_.resize(index + 1, nullptr);
  if (marks_[index] != nullptr) api.clReleaseEvent(marks_[index]);
  marks_[index] = nullptr;
  TK_CALL(clEnqueueMarkerWithWaitList, queue_, 0, nullptr, &marks_[index]);
  return TK_OK;
}

tk_status OpenClQueue::time_of(int32_t number, uint64_t *nanoseconds) {
  const size_t index = static_cast<size_t>(number);
  if (index >= marks_.size() || marks_[index] == nullptr) return fail(TK_ERR_ARGUMENT, "mark %d was never set", number);
  TK_CALL(clGetEventProfilingInfo, marks_[index], cl::kProfilingCommandEnd, sizeof *nanoseconds, nanoseconds, nullptr);
  return TK_OK;
}

tk_status OpenClQueue::elapsed(int32_t from, int32_t to, int64_t *nanoseconds) {
  if (!timed_) {
    const auto span = waited_.at(static_cast<size_t>(to)) - waited_.at(static_cast<size_t>(from));
    *nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(span).count();
    return TK_OK;
  }
  uint64_t first = 0, last = 0;
  if (const tk_status status = time_of(from, &first)) return status;
  if (const tk_status status = time_of(to, &last)) return status;
  *nanoseconds = static_cast<int64_t>(last - first);
  return TK_OK;
}

tk_status OpenClDevice::open_queue(const Stream &stream, Queue **queue) {
  std::unique_ptr<OpenClQueue> opened(new OpenClQueue(this));
  if (const tk_status status = opened->open(stream.handle)) return status;
  *queue = opened.release();
  return TK_OK;
}

}  // namespace

tk_status open_native_device(const Program &program, const char *selector, Device **device) {
  const cl::Api *api = cl::open_api();
  if (api == nullptr)
    return fail(TK_ERR_HOST,
                "this machine has no OpenCL loader (libOpenCL.so.1), or one before OpenCL 1.2; install one "
                "(Debian, Ubuntu: apt install ocl-icd-libopencl1) and a driver for the device");
  cl::Found found;
  if (const tk_status status = cl::find_device(*api, program, selector, &found)) return status;
  std::unique_ptr<OpenClDevice> opened(new OpenClDevice(*api, program, found));
  if (const tk_status status = opened->open(program)) return status;
  *device = opened.release();
  return TK_OK;
}

}  // namespace tk
