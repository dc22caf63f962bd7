// The emulator as a device: kernels in CUDA or HIP on the processor, from a library that they were compiled into.
// Everything is done at once, in host memory.
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "device.h"
#include "emulation.h"
#include "error.h"
#include "tk_plan.h"

namespace tk {
namespace {

constexpr char kName[] = "emulator";
constexpr size_t kNameLength = sizeof kName - 1;
constexpr int kMessageBytes = 4096;
constexpr int kPoison = 0xff;  // NaN in floats, -1 in integers: nobody may count on what was never written

using Clock = std::chrono::steady_clock;

class EmulatorQueue final : public Queue {
 public:
  EmulatorQueue(const Program &program, const Emulation &emulation) : program_(program), emulation_(emulation) {}

  tk_status upload(void *to, const void *from, int64_t bytes) override { return copy(to, from, bytes); }
  tk_status download(void *to, const void *from, int64_t bytes) override { return copy(to, from, bytes); }
  tk_status copy(void *to, const void *from, int64_t bytes) override {
    std::memmove(to, from, static_cast<size_t>(bytes));
    return TK_OK;
  }

  tk_status launch(const Launch &launch, void *const *args, int32_t n_args) override {
    EmulatedLaunch emulated = {program_.functions[launch.function], {}, {}, args, n_args};
    for (int i = 0; i < 3; ++i) {
      emulated.grid[i] = launch.grid[i];
      emulated.block[i] = launch.block[i];
    }
    std::string message(kMessageBytes, '\0');
    if (emulation_.launch(emulated, &message[0], kMessageBytes)) return TK_OK;
    return fail(TK_ERR_DEVICE, "%s", message.c_str());
  }

  tk_status mark(int32_t number) override {
    const size_t index = static_cast<size_t>(number);
    if (marks_.size() <= index) marks_.resize(index + 1);
    marks_[index] = Clock::now();
    return TK_OK;
  }
  tk_status elapsed(int32_t from, int32_t to, int64_t *nanoseconds) override {
    const Clock::duration time = marks_[static_cast<size_t>(to)] - marks_[static_cast<size_t>(from)];
    *nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    return TK_OK;
  }
  tk_status finish() override { return TK_OK; }

 private:
  const Program &program_;
  const Emulation &emulation_;
  std::vector<Clock::time_point> marks_;
};

class Emulator final : public Device {
 public:
  Emulator(const Program &program, void *library, const Emulation &emulation)
      : names_(program.functions, program.functions + program.n_functions),
        program_(program),
        library_(library),
        emulation_(emulation) {
    program_.functions = names_.data();
  }
  ~Emulator() override { dlclose(library_); }

  const char *describe() const override { return "emulator on the host's processor"; }
  DLDevice dlpack() const override { return {kDLCPU, 0}; }

  tk_status allocate(int64_t bytes, void **memory) override {
    const int64_t whole = (bytes / TK_ALIGNMENT + 1) * TK_ALIGNMENT;
    *memory = std::aligned_alloc(TK_ALIGNMENT, static_cast<size_t>(whole));
    if (*memory == nullptr)
      return fail(TK_ERR_MEMORY, "no memory on the emulated device (%lld bytes)", static_cast<long long>(bytes));
    std::memset(*memory, kPoison, static_cast<size_t>(whole));
    return TK_OK;
  }
  void release(void *memory) override { std::free(memory); }

  tk_status open_queue(const Stream &stream, Queue **queue) override {
    if (stream.callers) return fail(TK_ERR_ARGUMENT, "the emulator has no streams: expected none");
    *queue = new (std::nothrow) EmulatorQueue(program_, emulation_);
    return *queue == nullptr ? fail(TK_ERR_MEMORY, "no memory for a queue") : TK_OK;
  }

 private:
  std::vector<const char *> names_;
  Program program_;
  void *library_;
  const Emulation &emulation_;
};

const Image *source_of(const Program &program) {
  for (int32_t i = 0; i < program.n_images; ++i)
    if (std::strcmp(program.images[i].kind, "source") == 0) return &program.images[i];
  return nullptr;
}

tk_status check(const Program &program, const char *path, const Emulation *emulation) {
  if (emulation == nullptr || emulation->version != kEmulationVersion)
    return fail(TK_ERR_LIBRARY, "%s is no library for the emulator of this version", path);
  const Image *source = source_of(program);
  if (source == nullptr)
    return fail(TK_ERR_LIBRARY, "the library carries no source of its kernels for the emulator");
  if (source->bytes != emulation->text_bytes || std::memcmp(source->data, emulation->text, static_cast<size_t>(source->bytes)) != 0)
    return fail(TK_ERR_LIBRARY, "%s was made from other kernels than this library's", path);
  return TK_OK;
}

}  // namespace

bool asks_for_emulator(const char *selector) {
  return std::strncmp(selector, kName, kNameLength) == 0 && (selector[kNameLength] == '\0' || selector[kNameLength] == ':');
}

tk_status open_emulator(const Program &program, const char *selector, Device **device) {
  const char *path = selector[kNameLength] == ':' ? selector + kNameLength + 1 : std::getenv("TK_EMULATOR");
  if (path == nullptr || *path == '\0')
    return fail(TK_ERR_HOST,
                "the emulator needs this library's kernels compiled for the host: `tk run --device emulator` does "
                "that; from C, name the result with TK_EMULATOR or as emulator:PATH");
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return fail(TK_ERR_HOST, "cannot load the emulated kernels: %s", dlerror());
  const Emulation *emulation = static_cast<const Emulation *>(dlsym(library, kEmulationSymbol));
  const tk_status status = check(program, path, emulation);
  Emulator *opened = status == TK_OK ? new (std::nothrow) Emulator(program, library, *emulation) : nullptr;
  if (opened == nullptr) {
    dlclose(library);
    return status != TK_OK ? status : fail(TK_ERR_MEMORY, "no memory for the emulated device");
  }
  *device = opened;
  return TK_OK;
}

}  // namespace tk
