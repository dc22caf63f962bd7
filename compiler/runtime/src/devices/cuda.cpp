// NVIDIA GPUs through CUDA's driver (libcuda.so.1), which comes with the display driver; no toolkit is needed.
// Types and values: CUDA Driver API reference.

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>

#include "error.h"
#include "gpu.h"

namespace tk {
namespace {

typedef int Status;            // CUresult
typedef int Number;            // CUdevice
typedef uint64_t Pointer;      // CUdeviceptr
typedef struct Opaque *Handle; // CUcontext, CUmodule, CUfunction, CUstream, CUevent, CUgraph, CUgraphExec

constexpr Status kOutOfMemory = 2, kNoDevice = 100, kUnsupportedPtx = 222;
constexpr int kMajor = 75, kMinor = 76;           // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_...
constexpr int kDynamicSharedBytes = 8;            // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
constexpr unsigned kNonBlocking = 1;              // CU_STREAM_NON_BLOCKING
constexpr int kCaptureThreadLocal = 1;            // CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
constexpr int kCaptureActive = 1;                 // CU_STREAM_CAPTURE_STATUS_ACTIVE
constexpr int kSerialization = 6;                 // CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
constexpr int kRecordsOverlap = 12030;            // the first CUDA whose graphs keep such launches as they are
constexpr int32_t kDLCUDA = 2;

struct Attribute {  // CUlaunchAttribute
  int id;
  alignas(8) unsigned char value[64];
};
struct Config {  // CUlaunchConfig
  unsigned grid[3], block[3], shared_bytes;
  Handle stream;
  Attribute *attributes;
  unsigned n_attributes;
};

// name, its symbol in the library, parameters
#define TK_CUDA_FUNCTIONS(use)                                                                                    \
  use(init, "cuInit", (unsigned))                                                                                 \
  use(version, "cuDriverGetVersion", (int *))                                                                     \
  use(count, "cuDeviceGetCount", (int *))                                                                         \
  use(device, "cuDeviceGet", (Number *, int))                                                                     \
  use(name, "cuDeviceGetName", (char *, int, Number))                                                             \
  use(attribute, "cuDeviceGetAttribute", (int *, int, Number))                                                    \
  use(retain, "cuDevicePrimaryCtxRetain", (Handle *, Number))                                                     \
  use(push, "cuCtxPushCurrent_v2", (Handle))                                                                      \
  use(pop, "cuCtxPopCurrent_v2", (Handle *))                                                                      \
  use(load_module, "cuModuleLoadData", (Handle *, const void *))                                                  \
  use(unload_module, "cuModuleUnload", (Handle))                                                                  \
  use(get_function, "cuModuleGetFunction", (Handle *, Handle, const char *))                                      \
  use(set_function_attribute, "cuFuncSetAttribute", (Handle, int, int))                                           \
  use(malloc, "cuMemAlloc_v2", (Pointer *, size_t))                                                               \
  use(free, "cuMemFree_v2", (Pointer))                                                                            \
  use(upload, "cuMemcpyHtoDAsync_v2", (Pointer, const void *, size_t, Handle))                                    \
  use(download, "cuMemcpyDtoHAsync_v2", (void *, Pointer, size_t, Handle))                                        \
  use(within, "cuMemcpyDtoDAsync_v2", (Pointer, Pointer, size_t, Handle))                                         \
  use(create_stream, "cuStreamCreate", (Handle *, unsigned))                                                      \
  use(destroy_stream, "cuStreamDestroy_v2", (Handle))                                                             \
  use(synchronize, "cuStreamSynchronize", (Handle))                                                               \
  use(create_event, "cuEventCreate", (Handle *, unsigned))                                                        \
  use(destroy_event, "cuEventDestroy_v2", (Handle))                                                               \
  use(record, "cuEventRecord", (Handle, Handle))                                                                  \
  use(elapsed_time, "cuEventElapsedTime", (float *, Handle, Handle))                                              \
  use(wait_event, "cuStreamWaitEvent", (Handle, Handle, unsigned))                                                \
  use(launch_kernel, "cuLaunchKernel",                                                                            \
      (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **))   \
  use(error_name, "cuGetErrorName", (Status, const char **))                                                      \
  use(error_string, "cuGetErrorString", (Status, const char **))

// Since CUDA 11.4; runs go without graphs where they are missing.
#define TK_CUDA_GRAPH_FUNCTIONS(use)                                    \
  use(capture, "cuStreamBeginCapture_v2", (Handle, int))                \
  use(captured, "cuStreamEndCapture", (Handle, Handle *))               \
  use(is_capturing, "cuStreamIsCapturing", (Handle, int *))             \
  use(instantiate, "cuGraphInstantiateWithFlags", (Handle *, Handle, unsigned long long)) \
  use(launch_graph, "cuGraphLaunch", (Handle, Handle))                  \
  use(destroy_graph, "cuGraphDestroy", (Handle))                        \
  use(destroy_executable, "cuGraphExecDestroy", (Handle))

// Since CUDA 11.8; launches do not overlap where it is missing.
#define TK_CUDA_LAUNCH_FUNCTIONS(use) use(launch_extended, "cuLaunchKernelEx", (const Config *, Handle, void **, void **))

struct Driver {
#define TK_DECLARE(name, symbol, params) Status(*name) params = nullptr;
  TK_CUDA_FUNCTIONS(TK_DECLARE)
  TK_CUDA_GRAPH_FUNCTIONS(TK_DECLARE)
  TK_CUDA_LAUNCH_FUNCTIONS(TK_DECLARE)
#undef TK_DECLARE
};

struct Capability {
  int major, minor;
};

// Of "sm_86"; 0.0 for anything else.
Capability capability_of(const char *arch) {
  if (std::strncmp(arch, "sm_", 3) != 0) return {0, 0};
  const int number = std::atoi(arch + 3);
  return {number / 10, number % 10};
}

// Boards of the Jetson family run and make only code of exactly their capability (CUDA C++ Programming Guide, "Binary
// Compatibility").
bool stands_alone(Capability one) { return (one.major == 7 && one.minor == 2) || (one.major == 8 && one.minor == 7); }

// Of ".version 8.5" near the head of a text; empty where there is none.
std::string ptx_version(const Image &image) {
  const std::string text(reinterpret_cast<const char *>(image.data), static_cast<size_t>(image.bytes));
  const char word[] = ".version ";
  const size_t at = text.find(word);
  if (at == std::string::npos) return "";
  const size_t begin = at + sizeof word - 1;
  return text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
}

class CudaApi final : public GpuApi {
 public:
  Driver driver;

  const char *maker() const override { return "NVIDIA"; }
  int32_t dlpack_type() const override { return kDLCUDA; }

  // A cubin runs on its own major number with the same or a later minor one, PTX on everything later.
  const Image *fitting(const Program &program, const std::string &arch) const override {
    const Capability here = capability_of(arch.c_str());
    const Image *cubin = nullptr, *ptx = nullptr;
    int best = -1;
    for (int32_t i = 0; i < program.n_images; ++i) {
      const Image &image = program.images[i];
      const Capability there = capability_of(image.arch);
      const bool same = there.major == here.major && there.minor == here.minor;
      const bool later = there.major == here.major && there.minor <= here.minor;
      const bool runs = later && !stands_alone(there) && !stands_alone(here);
      if (std::strcmp(image.kind, "cubin") == 0 && (same || runs) && there.minor > best) {
        best = there.minor;
        cubin = &image;
      }
      const bool older = there.major * 10 + there.minor <= here.major * 10 + here.minor;
      if (std::strcmp(image.kind, "ptx") == 0 && older) ptx = &image;
    }
    return cubin != nullptr ? cubin : ptx;
  }

  std::string describe(int status) const override {
    const char *name = nullptr, *text = nullptr;
    driver.error_name(status, &name);
    driver.error_string(status, &text);
    if (name == nullptr) return "status " + std::to_string(status);
    return std::string(name) + (text == nullptr ? "" : std::string(" (") + text + ")");
  }
  bool is_memory(int status) const override { return status == kOutOfMemory; }

  // A driver translates PTX up to the version that its own CUDA has; cubins of later ones of the same major number run.
  std::string advice(int status, const Image &image, const std::string &arch) const override {
    if (status != kUnsupportedPtx || std::strcmp(image.kind, "ptx") != 0) return "";
    int version = 0;
    if (driver.version(&version) != 0) version = 0;
    return "; it is PTX " + ptx_version(image) + ", newer than this driver, which is of CUDA " +
           std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10) +
           "; update the driver, or compile with `--arch " + arch + "` for code that needs no translation";
  }

  int enter(int32_t number) override {
    Handle context = nullptr;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (contexts_.size() <= static_cast<size_t>(number)) contexts_.resize(static_cast<size_t>(number) + 1, nullptr);
      Handle &kept = contexts_[static_cast<size_t>(number)];
      // The context that the CUDA runtime and frameworks use, too; kept until the process ends.
      if (kept == nullptr)
        if (const Status status = driver.retain(&kept, number)) return status;
      context = kept;
    }
    return driver.push(context);
  }
  void leave() override {
    Handle old = nullptr;
    driver.pop(&old);
  }

  int load(const Image &image, void **module) override { return driver.load_module(handles(module), image.data); }
  void unload(void *module) override { driver.unload_module(handle(module)); }
  int find(void *module, const char *name, void **function) override {
    return driver.get_function(handles(function), handle(module), name);
  }
  int allow_shared(void *function, int bytes) override {
    return driver.set_function_attribute(handle(function), kDynamicSharedBytes, bytes);
  }

  int allocate(size_t bytes, void **memory) override {
    Pointer made = 0;
    const Status status = driver.malloc(&made, bytes);
    *memory = reinterpret_cast<void *>(made);
    return status;
  }
  void release(void *memory) override { driver.free(pointer(memory)); }

  int open_stream(void **stream) override { return driver.create_stream(handles(stream), kNonBlocking); }
  void close_stream(void *stream) override { driver.destroy_stream(handle(stream)); }
  int wait(void *stream) override { return driver.synchronize(handle(stream)); }
  int copy(Copy kind, void *to, const void *from, size_t bytes, void *stream) override {
    if (kind == Copy::kUpload) return driver.upload(pointer(to), from, bytes, handle(stream));
    if (kind == Copy::kDownload) return driver.download(to, pointer(from), bytes, handle(stream));
    return driver.within(pointer(to), pointer(from), bytes, handle(stream));
  }
  int launch(void *function, const Launch &launch, bool overlapped, void *stream, void **params) override {
    if (overlapped) {
      Attribute serialization = {kSerialization, {1}};
      const Config config = {{launch.grid[0], launch.grid[1], launch.grid[2]},
                             {launch.block[0], launch.block[1], launch.block[2]},
                             launch.dynamic_bytes, handle(stream), &serialization, 1};
      return driver.launch_extended(&config, handle(function), params, nullptr);
    }
    return driver.launch_kernel(handle(function), launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                                launch.block[1], launch.block[2], launch.dynamic_bytes, handle(stream), params, nullptr);
  }

  // tk_await_earlier() is empty in code for what came before Hopper.
  bool overlaps(const Image &image) const override {
    int version = 0;
    return driver.launch_extended != nullptr && driver.version(&version) == 0 && version >= kRecordsOverlap &&
           capability_of(image.arch).major >= 9;
  }

  int open_event(void **event) override { return driver.create_event(handles(event), 0); }
  void close_event(void *event) override { driver.destroy_event(handle(event)); }
  int mark(void *event, void *stream) override { return driver.record(handle(event), handle(stream)); }
  int elapsed(void *from, void *to, float *milliseconds) override {
    return driver.elapsed_time(milliseconds, handle(from), handle(to));
  }
  int follow(void *stream, void *event) override { return driver.wait_event(handle(stream), handle(event), 0); }

  bool has_graphs() const override { return driver.instantiate != nullptr && driver.capture != nullptr; }
  bool is_recorded(void *stream) const override {
    int state = 0;
    return driver.is_capturing != nullptr && driver.is_capturing(handle(stream), &state) == 0 && state == kCaptureActive;
  }
  int begin_capture(void *stream) override { return driver.capture(handle(stream), kCaptureThreadLocal); }
  int end_capture(void *stream, void **graph) override {
    Handle recorded = nullptr;
    if (const Status status = driver.captured(handle(stream), &recorded)) return status;
    const Status status = driver.instantiate(handles(graph), recorded, 0);
    driver.destroy_graph(recorded);
    return status;
  }
  int replay(void *graph, void *stream) override { return driver.launch_graph(handle(graph), handle(stream)); }
  void close_graph(void *graph) override { driver.destroy_executable(handle(graph)); }

 private:
  static Handle handle(void *one) { return static_cast<Handle>(one); }
  static Handle *handles(void **one) { return reinterpret_cast<Handle *>(one); }
  static Pointer pointer(const void *memory) { return reinterpret_cast<Pointer>(memory); }

  std::mutex mutex_;
  std::vector<Handle> contexts_;
};

// The driver, opened once; null with the reason in `why`.
CudaApi *open_api(std::string *why) {
  static std::string reason;
  static CudaApi *const api = []() -> CudaApi * {
    const char *const libraries[] = {"libcuda.so.1", "libcuda.so"};
    void *library = open_driver(libraries, 2, &reason);
    if (library == nullptr) return nullptr;
    CudaApi *opened = new CudaApi();  // driver calls may come until the process ends
#define TK_LOOK_UP(name, symbol, params)                                                                    \
  opened->driver.name = reinterpret_cast<decltype(opened->driver.name)>(dlsym(library, symbol));            \
  if (opened->driver.name == nullptr && missing.empty()) missing = symbol;
    std::string missing;
    TK_CUDA_GRAPH_FUNCTIONS(TK_LOOK_UP)
    TK_CUDA_LAUNCH_FUNCTIONS(TK_LOOK_UP)
    missing.clear();
    TK_CUDA_FUNCTIONS(TK_LOOK_UP)
#undef TK_LOOK_UP
    if (missing.empty()) return opened;
    reason = "libcuda.so.1 has no " + missing;
    delete opened;
    return nullptr;
  }();
  if (api == nullptr) *why = reason;
  return api;
}

tk_status list_gpus(const CudaApi &api, std::vector<Gpu> *gpus) {
  const Driver &driver = api.driver;
  const Status started = driver.init(0);
  if (started == kNoDevice) return TK_OK;
  if (started != 0)
    return fail(TK_ERR_HOST, "the NVIDIA driver does not start: %s; `tk doctor` looks for the cause",
                api.describe(started).c_str());
  int count = 0;
  if (const Status status = driver.count(&count))
    return fail(TK_ERR_DEVICE, "the NVIDIA driver shows no GPUs: %s", api.describe(status).c_str());
  for (int i = 0; i < count; ++i) {
    Number number = 0;
    char name[256] = "";
    int major = 0, minor = 0;
    Status status = driver.device(&number, i);
    if (status == 0) status = driver.name(name, sizeof(name), number);
    if (status == 0) status = driver.attribute(&major, kMajor, number);
    if (status == 0) status = driver.attribute(&minor, kMinor, number);
    if (status != 0)
      return fail(TK_ERR_DEVICE, "the NVIDIA driver says nothing of GPU %d: %s", i, api.describe(status).c_str());
    gpus->push_back({number, name, "sm_" + std::to_string(10 * major + minor)});
  }
  return TK_OK;
}

}  // namespace

tk_status find_gpus(GpuApi **api, std::vector<Gpu> *gpus) {
  std::string why;
  CudaApi *const opened = open_api(&why);
  if (opened == nullptr)
    return fail(TK_ERR_HOST,
                "no NVIDIA driver: %s; install it (it brings libcuda.so.1), or in a container give it the GPUs, as "
                "`tk image run` does",
                why.c_str());
  *api = opened;
  return list_gpus(*opened, gpus);
}

}  // namespace tk
