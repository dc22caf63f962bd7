// AMD GPUs and Hygon DCUs through HIP's runtime (libamdhip64.so), of ROCm, Debian or DTK. Types and values: HIP API
// reference.

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <mutex>

#include "error.h"
#include "gpu.h"

namespace tk {
namespace {

typedef int Status;             // hipError_t
typedef struct Opaque *Handle;  // hipModule_t, hipFunction_t, hipStream_t, hipEvent_t, hipGraph_t, hipGraphExec_t

constexpr Status kOutOfMemory = 2, kNoDevice = 100;
constexpr unsigned kNonBlocking = 1;    // hipStreamNonBlocking
constexpr int kCaptureThreadLocal = 1;  // hipStreamCaptureModeThreadLocal
constexpr int kCaptureActive = 1;       // hipStreamCaptureStatusActive
constexpr int32_t kDLROCM = 10;

#define TK_HIP_FUNCTIONS(use)                                                                                         \
  use(count, "hipGetDeviceCount", Status, (int *))                                                                    \
  use(get_device, "hipGetDevice", Status, (int *))                                                                    \
  use(set_device, "hipSetDevice", Status, (int))                                                                      \
  use(load_module, "hipModuleLoadData", Status, (Handle *, const void *))                                             \
  use(unload_module, "hipModuleUnload", Status, (Handle))                                                             \
  use(get_function, "hipModuleGetFunction", Status, (Handle *, Handle, const char *))                                 \
  use(malloc, "hipMalloc", Status, (void **, size_t))                                                                 \
  use(free, "hipFree", Status, (void *))                                                                              \
  use(copy, "hipMemcpyAsync", Status, (void *, const void *, size_t, int, Handle))                                    \
  use(create_stream, "hipStreamCreateWithFlags", Status, (Handle *, unsigned))                                        \
  use(destroy_stream, "hipStreamDestroy", Status, (Handle))                                                           \
  use(synchronize, "hipStreamSynchronize", Status, (Handle))                                                          \
  use(create_event, "hipEventCreate", Status, (Handle *))                                                             \
  use(destroy_event, "hipEventDestroy", Status, (Handle))                                                             \
  use(record, "hipEventRecord", Status, (Handle, Handle))                                                             \
  use(elapsed_time, "hipEventElapsedTime", Status, (float *, Handle, Handle))                                         \
  use(wait_event, "hipStreamWaitEvent", Status, (Handle, Handle, unsigned))                                           \
  use(launch_kernel, "hipModuleLaunchKernel", Status,                                                                 \
      (Handle, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Handle, void **, void **))       \
  use(error_name, "hipGetErrorName", const char *, (Status))                                                          \
  use(error_string, "hipGetErrorString", const char *, (Status))

// The first two fill a structure that differs between releases; graphs: since ROCm 4.5.
#define TK_HIP_OPTIONAL_FUNCTIONS(use)                                                                        \
  use(properties, "hipGetDeviceProperties", Status, (void *, int))                                            \
  use(properties_6, "hipGetDevicePropertiesR0600", Status, (void *, int))                                     \
  use(capture, "hipStreamBeginCapture", Status, (Handle, int))                                                \
  use(captured, "hipStreamEndCapture", Status, (Handle, Handle *))                                            \
  use(is_capturing, "hipStreamIsCapturing", Status, (Handle, int *))                                          \
  use(instantiate, "hipGraphInstantiate", Status, (Handle *, Handle, Handle *, char *, size_t))               \
  use(launch_graph, "hipGraphLaunch", Status, (Handle, Handle))                                               \
  use(destroy_graph, "hipGraphDestroy", Status, (Handle))                                                     \
  use(destroy_executable, "hipGraphExecDestroy", Status, (Handle))

struct Driver {
#define TK_DECLARE(name, symbol, result, params) result(*name) params = nullptr;
  TK_HIP_FUNCTIONS(TK_DECLARE)
  TK_HIP_OPTIONAL_FUNCTIONS(TK_DECLARE)
#undef TK_DECLARE
};

class HipApi final : public GpuApi {
 public:
  Driver driver;

  const char *maker() const override { return "AMD"; }
  int32_t dlpack_type() const override { return kDLROCM; }

  // A code object runs on exactly its arch. Hygon's gfx916 runs those for gfx906.
  const Image *fitting(const Program &program, const std::string &arch) const override {
    for (const char *wanted : {arch.c_str(), arch == "gfx916" ? "gfx906" : arch.c_str()})
      for (int32_t i = 0; i < program.n_images; ++i) {
        const Image &image = program.images[i];
        if (std::strcmp(image.kind, "hsaco") == 0 && std::strcmp(image.arch, wanted) == 0) return &image;
      }
    return nullptr;
  }

  std::string describe(int status) const override {
    const char *name = driver.error_name(status), *text = driver.error_string(status);
    if (name == nullptr) return "status " + std::to_string(status);
    return std::string(name) + (text == nullptr ? "" : std::string(" (") + text + ")");
  }
  bool is_memory(int status) const override { return status == kOutOfMemory; }

  // The current GPU of a thread is put back: the caller may work with another one. Calls are not nested.
  int enter(int32_t number) override {
    if (const Status status = driver.get_device(&before())) return status;
    return driver.set_device(number);
  }
  void leave() override { driver.set_device(before()); }

  int load(const Image &image, void **module) override { return driver.load_module(handles(module), image.data); }
  void unload(void *module) override { driver.unload_module(handle(module)); }
  int find(void *module, const char *name, void **function) override {
    return driver.get_function(handles(function), handle(module), name);
  }
  int allow_shared(void *, int) override { return 0; }  // all 64 KB are for everybody

  int allocate(size_t bytes, void **memory) override { return driver.malloc(memory, bytes); }
  void release(void *memory) override { driver.free(memory); }

  int open_stream(void **stream) override { return driver.create_stream(handles(stream), kNonBlocking); }
  void close_stream(void *stream) override { driver.destroy_stream(handle(stream)); }
  int wait(void *stream) override { return driver.synchronize(handle(stream)); }
  int copy(Copy kind, void *to, const void *from, size_t bytes, void *stream) override {
    const int code = kind == Copy::kUpload ? 1 : kind == Copy::kDownload ? 2 : 3;  // hipMemcpyKind
    return driver.copy(to, from, bytes, code, handle(stream));
  }
  int launch(void *function, const Launch &launch, bool, void *stream, void **params) override {
    return driver.launch_kernel(handle(function), launch.grid[0], launch.grid[1], launch.grid[2], launch.block[0],
                                launch.block[1], launch.block[2], launch.dynamic_bytes, handle(stream), params, nullptr);
  }

  int open_event(void **event) override { return driver.create_event(handles(event)); }
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
    const Status status = driver.instantiate(handles(graph), recorded, nullptr, nullptr, 0);
    driver.destroy_graph(recorded);
    return status;
  }
  int replay(void *graph, void *stream) override { return driver.launch_graph(handle(graph), handle(stream)); }
  void close_graph(void *graph) override { driver.destroy_executable(handle(graph)); }

 private:
  static Handle handle(void *one) { return static_cast<Handle>(one); }
  static Handle *handles(void **one) { return reinterpret_cast<Handle *>(one); }
  static int &before() {
    static thread_local int number = 0;
    return number;
  }
};

// The runtime, opened once; null with the reason in `why`.
HipApi *open_api(std::string *why) {
  static std::string reason;
  static HipApi *const api = []() -> HipApi * {
    // The last are those of DTK.
    const char *const libraries[] = {"libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5", "libamdhip64.so.4",
                                     "libamdhip64.so",   "libgalaxyhip.so.5", "libgalaxyhip.so"};
    void *library = open_driver(libraries, static_cast<int32_t>(sizeof(libraries) / sizeof(*libraries)), &reason);
    if (library == nullptr) return nullptr;
    HipApi *opened = new HipApi();  // calls may come until the process ends
#define TK_LOOK_UP(name, symbol, result, params)                                                 \
  opened->driver.name = reinterpret_cast<decltype(opened->driver.name)>(dlsym(library, symbol)); \
  if (opened->driver.name == nullptr && missing.empty()) missing = symbol;
    std::string missing;
    TK_HIP_OPTIONAL_FUNCTIONS(TK_LOOK_UP)
    missing.clear();
    TK_HIP_FUNCTIONS(TK_LOOK_UP)
#undef TK_LOOK_UP
    const bool tells = opened->driver.properties != nullptr || opened->driver.properties_6 != nullptr;
    if (missing.empty() && tells) return opened;
    reason = "the HIP runtime has no " + (missing.empty() ? "hipGetDeviceProperties" : missing);
    delete opened;
    return nullptr;
  }();
  if (api == nullptr) *why = reason;
  return api;
}

// Name and arch of a GPU. The arch ("gfx90a:sramecc+:xnack-") lies at another place of the structure in each release,
// behind the name of 256 bytes: it is the text that begins with gfx.
Status properties_of(const Driver &driver, int number, Gpu *gpu) {
  constexpr size_t kBytes = 16384, kNameBytes = 256;
  std::vector<char> properties(kBytes, '\0');
  const Status status = driver.properties_6 != nullptr ? driver.properties_6(properties.data(), number)
                                                       : driver.properties(properties.data(), number);
  if (status != 0) return status;
  properties[kNameBytes - 1] = '\0';
  properties.back() = '\0';
  const std::string rest(properties.begin() + kNameBytes, properties.end());
  const size_t at = rest.find("gfx");
  const char *arch = at == std::string::npos ? "" : rest.c_str() + at;
  *gpu = {number, properties.data(), std::string(arch, std::strcspn(arch, ":"))};
  return 0;
}

tk_status list_gpus(const HipApi &api, std::vector<Gpu> *gpus) {
  int count = 0;
  const Status status = api.driver.count(&count);
  if (status == kNoDevice) return TK_OK;
  if (status != 0)
    return fail(TK_ERR_HOST, "the HIP runtime does not start: %s; `tk doctor` looks for the cause",
                api.describe(status).c_str());
  for (int i = 0; i < count; ++i) {
    Gpu gpu;
    if (const Status unknown = properties_of(api.driver, i, &gpu))
      return fail(TK_ERR_DEVICE, "the HIP runtime says nothing of GPU %d: %s", i, api.describe(unknown).c_str());
    gpus->push_back(gpu);
  }
  return TK_OK;
}

}  // namespace

tk_status find_gpus(GpuApi **api, std::vector<Gpu> *gpus) {
  std::string why;
  HipApi *const opened = open_api(&why);
  if (opened == nullptr)
    return fail(TK_ERR_HOST,
                "no HIP runtime: %s; install ROCm's (Debian, Ubuntu: apt install libamdhip64-5) or DTK, or run in an "
                "image that has it, as `tk image run` does",
                why.c_str());
  *api = opened;
  return list_gpus(*opened, gpus);
}

}  // namespace tk
