// SYCL devices, through the shim that the library carries (see sycl_shim.h): it is the only part that was
// built against a SYCL runtime, and it is opened only where a model is loaded for a device.
//
// The runtime is looked for as libsycl.so.N (the number is the shim's own), in this order: already loaded;
// TK_SYCL_ROOT/lib; where the dynamic linker looks (LD_LIBRARY_PATH, ldconfig); CMPLR_ROOT/lib and
// ONEAPI_ROOT/compiler/latest/lib; /opt/intel/oneapi/compiler/latest/lib. It is never closed again: SYCL
// runtimes register kernels in ways that do not survive it.
//
// Selectors: "cpu", "gpu", "gpu:1", "cuda:0", "level_zero", "opencl:1", a number among those that fit, or part
// of a name.
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "device.h"
#include "error.h"
#include "sycl_shim.h"

namespace tk {
namespace {

constexpr int kOneApi = 14;  // kDLOneAPI of DLPack: USM of a SYCL runtime
constexpr char kShim[] = "sycl-shim";
constexpr char kInstall[] =
    "install the SYCL runtime (pip install dpcpp-cpp-rt) and name its folder by TK_SYCL_ROOT or LD_LIBRARY_PATH";

tk_status passed(const tk_sycl_shim *shim, int32_t status) {
  if (status == TK_OK) return TK_OK;
  return fail(static_cast<tk_status>(status), "%s", shim->last_error());
}

class SyclQueue final : public Queue {
 public:
  SyclQueue(const tk_sycl_shim *shim, tk_sycl_queue *queue) : shim_(shim), queue_(queue) {}
  ~SyclQueue() override { shim_->close_queue(queue_); }
  tk_status upload(void *to, const void *from, int64_t bytes) override { return copy(to, from, bytes); }
  tk_status download(void *to, const void *from, int64_t bytes) override { return copy(to, from, bytes); }
  tk_status copy(void *to, const void *from, int64_t bytes) override {
    return passed(shim_, shim_->copy(queue_, to, from, bytes));
  }
  tk_status launch(const Launch &launch, void *const *args, int32_t n_args) override {
    return passed(shim_, shim_->launch(queue_, launch.function, launch.grid, launch.block, args, n_args));
  }
  tk_status mark(int32_t number) override { return passed(shim_, shim_->mark(queue_, number)); }
  tk_status elapsed(int32_t from, int32_t to, int64_t *nanoseconds) override {
    return passed(shim_, shim_->elapsed(queue_, from, to, nanoseconds));
  }
  tk_status finish() override { return passed(shim_, shim_->finish(queue_)); }

 private:
  const tk_sycl_shim *shim_;
  tk_sycl_queue *queue_;
};

class SyclDevice final : public Device {
 public:
  SyclDevice(const tk_sycl_shim *shim, tk_sycl_device *device) : shim_(shim), device_(device) {}
  ~SyclDevice() override { shim_->close(device_); }
  const char *describe() const override { return shim_->describe(device_); }
  DLDevice dlpack() const override { return {kOneApi, 0}; }
  tk_status allocate(int64_t bytes, void **memory) override {
    return passed(shim_, shim_->allocate(device_, bytes, memory));
  }
  void release(void *memory) override { shim_->release(device_, memory); }
  tk_status open_queue(const Stream &stream, Queue **queue) override {
    tk_sycl_queue *opened = nullptr;
    const tk_status status = passed(shim_, shim_->open_queue(device_, stream.handle, &opened));
    if (status != TK_OK) return status;
    *queue = new (std::nothrow) SyclQueue(shim_, opened);
    if (*queue) return TK_OK;
    shim_->close_queue(opened);
    return fail(TK_ERR_MEMORY, "not enough memory for a queue");
  }

 private:
  const tk_sycl_shim *shim_;
  tk_sycl_device *device_;
};

std::string folder_in(const char *variable, const std::string &below) {
  const char *value = std::getenv(variable);
  return value && *value ? std::string(value) + below : std::string();
}

// The name that the shim was linked with, libsycl.so.N: the string table of an ELF file holds it as text.
std::string needed_runtime(const Image &shim) {
  constexpr char prefix[] = "libsycl.so";
  const std::string bytes(reinterpret_cast<const char *>(shim.data), static_cast<size_t>(shim.bytes));
  for (size_t at = bytes.find(prefix); at != std::string::npos; at = bytes.find(prefix, at + 1)) {
    const std::string name = bytes.substr(at, bytes.find('\0', at) - at);
    if (name.find_first_not_of("libsyc.o0123456789") == std::string::npos) return name;
  }
  return prefix;
}

// Makes the driver for processors beside libsycl known to the OpenCL loader, which else looks only where
// system packages put their names. Intel's loader asks this variable besides (Khronos OpenCL-ICD-Loader).
void announce_driver(void *runtime) {
  constexpr char variable[] = "OCL_ICD_FILENAMES";
  struct link_map *map = nullptr;
  if (dlinfo(runtime, RTLD_DI_LINKMAP, &map) != 0 || !map || !map->l_name) return;
  const std::string path = map->l_name;
  const std::string driver = path.substr(0, path.rfind('/') + 1) + "libintelocl.so";
  if (access(driver.c_str(), R_OK) != 0) return;
  const char *given = std::getenv(variable);
  if (given && std::strstr(given, driver.c_str())) return;
  setenv(variable, (given && *given ? driver + ":" + given : driver).c_str(), 1);
}

tk_status open_runtime(const std::string &name) {
  const std::string places[] = {
      folder_in("TK_SYCL_ROOT", "/lib/" + name),
      folder_in("TK_SYCL_ROOT", "/" + name),
      name,  // wherever the dynamic linker looks
      folder_in("CMPLR_ROOT", "/lib/" + name),
      folder_in("ONEAPI_ROOT", "/compiler/latest/lib/" + name),
      "/opt/intel/oneapi/compiler/latest/lib/" + name,
  };
  void *opened = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NOLOAD);
  std::string trouble;
  for (const std::string &place : places) {
    if (opened) break;
    if (place.empty() || (place[0] == '/' && access(place.c_str(), R_OK) != 0)) continue;
    opened = dlopen(place.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if (const char *message = opened ? nullptr : dlerror()) trouble = message;
  }
  if (opened) return announce_driver(opened), TK_OK;
  return fail(TK_ERR_HOST, "there is no SYCL runtime: %s; %s", trouble.c_str(), kInstall);
}

// Writes the shim into memory and opens it from there. Each library's is opened once.
tk_status open_shim(const Image &image, const tk_sycl_shim **shim) {
  static std::mutex mutex;
  static std::vector<std::pair<const unsigned char *, const tk_sycl_shim *>> opened;
  const std::lock_guard<std::mutex> lock(mutex);
  for (const auto &one : opened)
    if (one.first == image.data) return *shim = one.second, TK_OK;
  const tk_status status = open_runtime(needed_runtime(image));
  if (status != TK_OK) return status;
  const int file = memfd_create("tk-sycl-shim", MFD_CLOEXEC);
  if (file < 0) return fail(TK_ERR_HOST, "memfd_create failed: %s", std::strerror(errno));
  for (int64_t done = 0; done < image.bytes;) {
    const ssize_t count = write(file, image.data + done, static_cast<size_t>(image.bytes - done));
    if (count <= 0) return close(file), fail(TK_ERR_MEMORY, "not enough memory for the SYCL part of the library");
    done += count;
  }
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", file);
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const char *trouble = handle ? "" : dlerror();
  const std::string message = trouble ? trouble : "";
  close(file);
  if (!handle)
    return fail(TK_ERR_HOST, "the SYCL runtime here does not fit this library: %s; %s", message.c_str(), kInstall);
  auto entry = reinterpret_cast<const tk_sycl_shim *(*)(void)>(dlsym(handle, TK_SYCL_SHIM_SYMBOL));
  if (!entry) return fail(TK_ERR_LIBRARY, "the SYCL part of the library has no %s", TK_SYCL_SHIM_SYMBOL);
  opened.emplace_back(image.data, *shim = entry());
  return TK_OK;
}

}  // namespace

// Libraries built ahead of time have a shim for each architecture; the first whose device is here is taken.
tk_status open_native_device(const Program &program, const char *selector, Device **device) {
  static_assert(sizeof(Image) == sizeof(tk_sycl_image), "both describe the same table");
  tk_sycl_program given{};
  given.target = program.target;
  given.images = reinterpret_cast<const tk_sycl_image *>(program.images);
  given.n_images = program.n_images;
  given.functions = program.functions;
  given.n_functions = program.n_functions;
  tk_status status = fail(TK_ERR_LIBRARY, "the library has no part for the SYCL runtime: its kernels were not built");
  for (int32_t i = 0; i < program.n_images; i++) {
    if (std::strcmp(program.images[i].kind, kShim) != 0) continue;
    const tk_sycl_shim *shim = nullptr;
    tk_sycl_device *opened = nullptr;
    given.own_arch = program.images[i].arch;
    status = open_shim(program.images[i], &shim);
    if (status != TK_OK) continue;
    status = passed(shim, shim->open(&given, selector ? selector : "", &opened));
    if (status != TK_OK) continue;
    *device = new (std::nothrow) SyclDevice(shim, opened);
    if (*device) return TK_OK;
    shim->close(opened);
    return fail(TK_ERR_MEMORY, "not enough memory for a device");
  }
  return status;
}

}  // namespace tk
