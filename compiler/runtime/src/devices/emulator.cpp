// The emulator as a device: kernels in CUDA or HIP on the processor, from a library that they were compiled into.
// Everything is done at once, in host memory.
#include <dlfcn.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <set>
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

// Launches with what each comes behind: those of a branch that are its latest, and those of what it awaited since.
class BranchedLaunches {
 public:
  using Latest = std::set<size_t>;

  explicit BranchedLaunches(int32_t branches = 1) : latest_(static_cast<size_t>(branches)) {}

  void set_branch(int32_t branch) { branch_ = static_cast<size_t>(branch); }
  void name_point(int32_t point) {
    const size_t index = static_cast<size_t>(point);
    if (points_.size() <= index) points_.resize(index + 1);
    points_[index] = latest_[branch_];
  }
  void await(int32_t point) {
    const Latest &left = points_[static_cast<size_t>(point)];
    latest_[branch_].insert(left.begin(), left.end());
  }
  void add(const Launch &launch, void *const *args, int32_t n_args) {
    launches_.push_back({launch, std::vector<void *>(args, args + n_args), latest_[branch_]});
    latest_[branch_] = {launches_.size() - 1};
  }

  // All launches, in one of the orders that are possible, by chance.
  template <typename Launched>
  tk_status replay(std::mt19937_64 *random, const Launched &launched) const {
    std::vector<bool> done(launches_.size(), false);
    for (size_t count = 0; count < launches_.size(); ++count) {
      std::vector<size_t> possible;
      for (size_t i = 0; i < launches_.size(); ++i)
        if (!done[i] && is_done(launches_[i].behind, done)) possible.push_back(i);
      const size_t next = possible[(*random)() % possible.size()];
      done[next] = true;
      const Recorded &one = launches_[next];
      if (const tk_status status = launched(one.launch, one.args.data(), static_cast<int32_t>(one.args.size())))
        return status;
    }
    return TK_OK;
  }

 private:
  struct Recorded {
    Launch launch;
    std::vector<void *> args;
    Latest behind;
  };
  static bool is_done(const Latest &all, const std::vector<bool> &done) {
    for (const size_t one : all)
      if (!done[one]) return false;
    return true;
  }

  std::vector<Recorded> launches_;
  std::vector<Latest> latest_, points_;
  size_t branch_ = 0;
};

class EmulatorQueue final : public Queue {
 public:
  EmulatorQueue(const Program &program, const Emulation &emulation) : program_(program), emulation_(emulation) {
    const char *const seed = std::getenv("TK_EMULATOR_ORDER");
    any_order_ = seed != nullptr && *seed != '\0';
    if (any_order_) random_.seed(std::strtoull(seed, nullptr, 10));
  }

  tk_status upload(void *to, const void *from, int64_t bytes) override { return copy(to, from, bytes); }
  tk_status download(void *to, const void *from, int64_t bytes) override { return copy(to, from, bytes); }
  tk_status copy(void *to, const void *from, int64_t bytes) override {
    std::memmove(to, from, static_cast<size_t>(bytes));
    return TK_OK;
  }

  tk_status launch(const Launch &launch, void *const *args, int32_t n_args) override {
    if (recording_ == nullptr) return run(launch, args, n_args);
    recording_->add(launch, args, n_args);
    return TK_OK;
  }

  // Recorded to try other orders, which takes longer than to do without.
  bool records() const override { return any_order_; }
  tk_status begin_recording(int32_t branches) override {
    recording_.reset(new BranchedLaunches(branches));
    return TK_OK;
  }
  void set_branch(int32_t branch) override { recording_->set_branch(branch); }
  tk_status name_point(int32_t point) override {
    recording_->name_point(point);
    return TK_OK;
  }
  tk_status await(int32_t point) override {
    recording_->await(point);
    return TK_OK;
  }
  tk_status end_recording(int32_t number) override {
    const size_t index = static_cast<size_t>(number);
    if (recordings_.size() <= index) recordings_.resize(index + 1);
    recordings_[index] = std::move(*recording_);
    recording_.reset();
    return TK_OK;
  }
  tk_status replay(int32_t number) override {
    return recordings_[static_cast<size_t>(number)].replay(
        &random_, [this](const Launch &one, void *const *args, int32_t n_args) { return run(one, args, n_args); });
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
  tk_status run(const Launch &launch, void *const *args, int32_t n_args) {
    EmulatedLaunch emulated = {program_.functions[launch.function], {}, {}, args, n_args};
    for (int i = 0; i < 3; ++i) {
      emulated.grid[i] = launch.grid[i];
      emulated.block[i] = launch.block[i];
    }
    std::string message(kMessageBytes, '\0');
    if (emulation_.launch(emulated, &message[0], kMessageBytes)) return TK_OK;
    return fail(TK_ERR_DEVICE, "%s", message.c_str());
  }

  const Program &program_;
  const Emulation &emulation_;
  std::vector<Clock::time_point> marks_;
  bool any_order_ = false;
  std::mt19937_64 random_;
  std::unique_ptr<BranchedLaunches> recording_;  // while it is open
  std::vector<BranchedLaunches> recordings_;
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

  const char *describe() const override {
    return emulation_.checked ? "emulator on the host's processor" : "emulator on the host's processor, without checks";
  }
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
