// Devices behind CUDA's driver and HIP's runtime: choosing one, loading its image, queues.

#include "gpu.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "error.h"

namespace tk {
namespace {

constexpr char kNotRecorded[] = "launches cannot be recorded";

constexpr unsigned kUsualShared = 48 << 10;  // dynamic shared memory that needs no permission

tk_status refused(const GpuApi &api, const char *what, int status, const std::string &advice = "") {
  return fail(api.is_memory(status) ? TK_ERR_MEMORY : TK_ERR_DEVICE, "%s: the %s driver reports %s%s", what,
              api.maker(), api.describe(status).c_str(), advice.c_str());
}

// Calls of this thread go to one GPU while it lives.
class Entered {
 public:
  Entered(GpuApi *api, int32_t number) : api_(api), status_(api->enter(number)) {}
  ~Entered() {
    if (status_ == 0) api_->leave();
  }
  Entered(const Entered &) = delete;
  Entered &operator=(const Entered &) = delete;
  int status() const { return status_; }

 private:
  GpuApi *api_;
  int status_;
};

#define TK_ENTER(what)                         \
  const Entered entered(api_, number_);        \
  if (entered.status() != 0) return refused(*api_, what, entered.status())
#define TK_CALL(what, call) \
  if (const int status = (call)) return refused(*api_, what, status)

class GpuQueue final : public Queue {
 public:
  GpuQueue(GpuApi *api, int32_t number, const std::vector<void *> *functions, bool overlaps, const Stream &stream)
      : api_(api), number_(number), functions_(functions), overlaps_(overlaps), stream_(stream.handle),
        callers_(stream.callers) {}

  ~GpuQueue() override {
    const Entered entered(api_, number_);
    if (entered.status() != 0) return;
    for (void *graph : graphs_)
      if (graph != nullptr) api_->close_graph(graph);
    for (const std::vector<void *> *events : {&events_, &points_, &ends_})
      for (void *event : *events)
        if (event != nullptr) api_->close_event(event);
    for (void *branch : branches_) api_->close_stream(branch);
    if (recorder_ != nullptr) api_->close_stream(recorder_);
    if (!callers_) api_->close_stream(stream_);
  }

  tk_status upload(void *to, const void *from, int64_t bytes) override {
    return move(Copy::kUpload, "a copy to the device failed", to, from, bytes);
  }
  tk_status download(void *to, const void *from, int64_t bytes) override {
    return move(Copy::kDownload, "a copy from the device failed", to, from, bytes);
  }
  tk_status copy(void *to, const void *from, int64_t bytes) override {
    return move(Copy::kWithin, "a copy within the device failed", to, from, bytes);
  }

  tk_status launch(const Launch &launch, void *const *args, int32_t n_args) override {
    TK_ENTER("a launch failed");
    params_.clear();
    for (int32_t i = 0; i < n_args; ++i) params_.push_back(const_cast<void **>(&args[i]));
    void *const function = (*functions_)[static_cast<size_t>(launch.function)];
    if (launch.dynamic_bytes > kUsualShared)
      TK_CALL("a launch asks for more shared memory than the device gives",
              api_->allow_shared(function, static_cast<int>(launch.dynamic_bytes)));
    // A launch that overlaps waits for the one before it on its branch alone, so no other edge may lead to it.
    const bool overlapped = overlaps_ && recording_ && follows_one_[branch_];
    TK_CALL("a launch failed",
            api_->launch(function, launch, overlapped, recording_ ? stream_of(branch_) : stream_, params_.data()));
    if (recording_) follows_one_[branch_] = true;
    return TK_OK;
  }

  tk_status mark(int32_t number) override {
    TK_ENTER("taking the time failed");
    return mark_on(&events_, number, stream_, "taking the time failed");
  }

  tk_status elapsed(int32_t from, int32_t to, int64_t *nanoseconds) override {
    TK_ENTER("reading a time failed");
    float milliseconds = 0;
    TK_CALL("reading a time failed",
            api_->elapsed(events_[static_cast<size_t>(from)], events_[static_cast<size_t>(to)], &milliseconds));
    *nanoseconds = static_cast<int64_t>(static_cast<double>(milliseconds) * 1e6);
    return TK_OK;
  }

  tk_status finish() override {
    TK_ENTER("the work on the device failed");
    TK_CALL("the work on the device failed", api_->wait(stream_));
    return TK_OK;
  }

  bool records() const override { return api_->has_graphs(); }
  tk_status begin_recording(int32_t branches) override {
    TK_ENTER(kNotRecorded);
    if (callers_ && recorder_ == nullptr) TK_CALL("a stream cannot be made", api_->open_stream(&recorder_));
    while (static_cast<int32_t>(branches_.size()) + 1 < branches) {
      void *stream = nullptr;
      TK_CALL("a stream cannot be made", api_->open_stream(&stream));
      branches_.push_back(stream);
    }
    TK_CALL(kNotRecorded, api_->begin_capture(recorder()));
    recording_ = true;
    branch_ = 0;
    follows_one_.assign(static_cast<size_t>(branches), false);
    const tk_status forked = fork_branches();
    if (forked != TK_OK) abandon_recording();
    return forked;
  }
  void set_branch(int32_t branch) override { branch_ = static_cast<size_t>(branch); }
  tk_status name_point(int32_t point) override {
    TK_ENTER(kNotRecorded);
    return mark_on(&points_, point, stream_of(branch_), kNotRecorded);
  }
  tk_status await(int32_t point) override {
    TK_ENTER(kNotRecorded);
    return go_behind(branch_, points_[static_cast<size_t>(point)]);
  }
  tk_status end_recording(int32_t number) override {
    const tk_status joined = join_branches();
    recording_ = false;
    TK_ENTER(kNotRecorded);
    if (graphs_.size() <= static_cast<size_t>(number)) graphs_.resize(static_cast<size_t>(number) + 1, nullptr);
    void *&graph = graphs_[static_cast<size_t>(number)];
    if (graph != nullptr) api_->close_graph(graph);
    graph = nullptr;
    TK_CALL(kNotRecorded, api_->end_capture(recorder(), &graph));
    return joined;
  }
  tk_status replay(int32_t number) override {
    TK_ENTER("a launch failed");
    TK_CALL("a launch failed", api_->replay(graphs_[static_cast<size_t>(number)], stream_));
    return TK_OK;
  }

 private:
  tk_status move(Copy kind, const char *what, void *to, const void *from, int64_t bytes) {
    if (bytes == 0) return TK_OK;
    TK_ENTER(what);
    TK_CALL(what, api_->copy(kind, to, from, static_cast<size_t>(bytes), stream_));
    return TK_OK;
  }

  tk_status mark_on(std::vector<void *> *events, int32_t number, void *stream, const char *what) {
    if (events->size() <= static_cast<size_t>(number)) events->resize(static_cast<size_t>(number) + 1, nullptr);
    void *&event = (*events)[static_cast<size_t>(number)];
    if (event == nullptr) TK_CALL(what, api_->open_event(&event));
    TK_CALL(what, api_->mark(event, stream));
    return TK_OK;
  }

  // A branch's stream is part of the recording from its first wait on; where a driver sees that otherwise, its
  // launches would be done at once.
  tk_status go_behind(size_t branch, void *event) {
    void *const stream = stream_of(branch);
    TK_CALL(kNotRecorded, api_->follow(stream, event));
    follows_one_[branch] = false;
    if (!api_->is_recorded(stream)) return fail(TK_ERR_DEVICE, "the %s driver does not record branches", api_->maker());
    return TK_OK;
  }

  // All branches begin with the first one.
  tk_status fork_branches() {
    for (size_t branch = 1; branch < follows_one_.size(); ++branch) {
      if (branch == 1)
        if (const tk_status status = mark_on(&ends_, 0, recorder(), kNotRecorded)) return status;
      if (const tk_status status = go_behind(branch, ends_[0])) return status;
    }
    return TK_OK;
  }

  // The first branch ends behind all others.
  tk_status join_branches() {
    TK_ENTER(kNotRecorded);
    for (size_t branch = 1; branch < follows_one_.size(); ++branch) {
      const int32_t number = static_cast<int32_t>(branch);
      if (const tk_status status = mark_on(&ends_, number, stream_of(branch), kNotRecorded)) return status;
      if (const tk_status status = go_behind(0, ends_[branch])) return status;
    }
    return TK_OK;
  }

  void abandon_recording() {
    recording_ = false;
    void *graph = nullptr;
    if (api_->end_capture(recorder(), &graph) == 0) api_->close_graph(graph);
  }

  void *stream_of(size_t branch) const { return branch == 0 ? recorder() : branches_[branch - 1]; }

  // Where launches are recorded: a caller's stream may be the default one, of which no driver records anything.
  void *recorder() const { return callers_ ? recorder_ : stream_; }

  GpuApi *const api_;
  const int32_t number_;
  const std::vector<void *> *const functions_;
  const bool overlaps_;
  void *const stream_;
  const bool callers_;
  void *recorder_ = nullptr;
  bool recording_ = false;
  std::vector<void *> branches_;      // the streams of all branches but the first
  size_t branch_ = 0;                 // that launches of the open recording go to
  std::vector<bool> follows_one_;     // of each branch: its next launch comes behind one launch, and nothing else
  std::vector<void *> graphs_;
  std::vector<void *> events_, points_;
  std::vector<void *> ends_;  // where branches begin, and where each of the others ends
  std::vector<void *> params_;  // of one launch: where its arguments lie
};

class GpuDevice final : public Device {
 public:
  GpuDevice(GpuApi *api, const Gpu &gpu)
      : api_(api), number_(gpu.number), arch_(gpu.arch), description_(gpu.name + " (" + gpu.arch + ")") {}

  ~GpuDevice() override {
    const Entered entered(api_, number_);
    if (entered.status() == 0 && module_ != nullptr) api_->unload(module_);
  }

  tk_status load(const Program &program, const Image &image) {
    TK_ENTER("the device cannot be used");
    overlaps_ = api_->overlaps(image);
    if (const int status = api_->load(image, &module_)) {
      const std::string name = std::string("the ") + image.kind + " for " + image.arch;
      const std::string what = name + " does not load on " + description_;
      return refused(*api_, what.c_str(), status, api_->advice(status, image, arch_));
    }
    for (int32_t i = 0; i < program.n_functions; ++i) {
      void *function = nullptr;
      const int status = api_->find(module_, program.functions[i], &function);
      if (status != 0)
        return fail(TK_ERR_LIBRARY, "the %s for %s has no kernel %s: the %s driver reports %s", image.kind, image.arch,
                    program.functions[i], api_->maker(), api_->describe(status).c_str());
      functions_.push_back(function);
    }
    return TK_OK;
  }

  const char *describe() const override { return description_.c_str(); }
  DLDevice dlpack() const override { return {static_cast<DLDeviceType>(api_->dlpack_type()), number_}; }

  tk_status allocate(int64_t bytes, void **memory) override {
    *memory = nullptr;
    if (bytes == 0) return TK_OK;
    TK_ENTER("the device cannot be used");
    const int status = api_->allocate(static_cast<size_t>(bytes), memory);
    if (status != 0)
      return fail(api_->is_memory(status) ? TK_ERR_MEMORY : TK_ERR_DEVICE, "%s gives no %lld bytes: %s",
                  description_.c_str(), static_cast<long long>(bytes), api_->describe(status).c_str());
    return TK_OK;
  }

  void release(void *memory) override {
    if (memory == nullptr) return;
    const Entered entered(api_, number_);
    if (entered.status() == 0) api_->release(memory);
  }

  bool has_default_stream() const override { return true; }

  tk_status open_queue(const Stream &stream, Queue **queue) override {
    TK_ENTER("the device cannot be used");
    Stream chosen = stream;
    if (!chosen.callers) TK_CALL("a stream cannot be made", api_->open_stream(&chosen.handle));
    *queue = new GpuQueue(api_, number_, &functions_, overlaps_, chosen);
    return TK_OK;
  }

 private:
  GpuApi *const api_;
  const int32_t number_;
  const std::string arch_, description_;
  void *module_ = nullptr;
  bool overlaps_ = false;
  std::vector<void *> functions_;
};

// ---------------------------------------------------------------- choosing

std::string lower(const char *text) {
  std::string result(text);
  for (char &letter : result) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return result;
}

bool names(const std::string &selector, const Gpu &gpu) {
  const size_t start = selector.compare(0, 4, "gpu:") == 0 ? 4 : 0;
  const std::string rest = selector.substr(start);
  if (!rest.empty() && rest.find_first_not_of("0123456789") == std::string::npos)
    return rest == std::to_string(gpu.number);
  return lower(gpu.name.c_str()).find(selector) != std::string::npos;
}

std::string listed(const std::vector<Gpu> &gpus) {
  std::string text;
  for (const Gpu &gpu : gpus)
    text += (text.empty() ? "" : ", ") + std::to_string(gpu.number) + ": " + gpu.name + " (" + gpu.arch + ")";
  return text;
}

// The archs that a program has images for, as `--arch` takes them.
std::string archs_of(const Program &program) {
  std::vector<std::string> archs;
  for (int32_t i = 0; i < program.n_images; ++i) {
    const std::string arch = program.images[i].arch;
    if (!arch.empty() && std::find(archs.begin(), archs.end(), arch) == archs.end()) archs.push_back(arch);
  }
  std::string text;
  for (const std::string &arch : archs) text += (text.empty() ? "" : ",") + arch;
  return text;
}

tk_status no_image(const Program &program, const Gpu &gpu) {
  const std::string archs = archs_of(program), target(program.target, std::strcspn(program.target, ":"));
  return fail(TK_ERR_DEVICE,
              "this library has kernels for %s, and %s is %s; compile it again with "
              "`tk compile MODEL.onnx --target %s --arch %s,%s`",
              archs.c_str(), gpu.name.c_str(), gpu.arch.c_str(), target.c_str(), archs.c_str(), gpu.arch.c_str());
}

// Opens the GPU that the selector names: a number (`1`, `gpu:1`), a part of its name, or nothing for the first that
// the program has an image for.
tk_status open_gpu(GpuApi *api, const std::vector<Gpu> &gpus, const Program &program, const char *selector,
                   Device **device) {
  const std::string wanted = lower(selector);
  const Gpu *misfit = nullptr;
  for (const Gpu &gpu : gpus) {
    if (!wanted.empty() && !names(wanted, gpu)) continue;
    const Image *image = api->fitting(program, gpu.arch);
    if (image == nullptr) {
      if (misfit == nullptr) misfit = &gpu;
      continue;
    }
    std::unique_ptr<GpuDevice> opened(new GpuDevice(api, gpu));
    if (const tk_status status = opened->load(program, *image)) return status;
    *device = opened.release();
    return TK_OK;
  }
  if (misfit != nullptr) return no_image(program, *misfit);
  if (gpus.empty()) return fail(TK_ERR_DEVICE, "the %s driver shows no GPU", api->maker());
  return fail(TK_ERR_DEVICE, "there is no %s GPU `%s`; there are %s", api->maker(), selector, listed(gpus).c_str());
}

}  // namespace

tk_status open_native_device(const Program &program, const char *selector, Device **device) {
  if (asks_for_emulator(selector)) return open_emulator(program, selector, device);
  GpuApi *api = nullptr;
  std::vector<Gpu> gpus;
  if (const tk_status status = find_gpus(&api, &gpus)) return status;
  return open_gpu(api, gpus, program, selector, device);
}

void *open_driver(const char *const *names, int32_t count, std::string *why) {
  for (int32_t i = 0; i < count; ++i) {
    if (void *library = dlopen(names[i], RTLD_NOW)) return library;
    if (i == 0) *why = dlerror();
  }
  return nullptr;
}

}  // namespace tk
