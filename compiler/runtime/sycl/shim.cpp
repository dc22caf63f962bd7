// The side of a model library that speaks SYCL; see sycl_shim.h. Built in two ways: by the host's C++ compiler,
// for kernels that the runtime's own compiler makes ("syclbin", "source"), and by DPC++ with -DTK_AHEAD behind
// the kernels themselves.
#if !defined(TK_AHEAD)
#define SYCL_DISABLE_FSYCL_SYCLHPP_WARNING
#if __has_include(<sycl/ext/oneapi/experimental/syclbin_kernel_bundle.hpp>)
#include <sycl/ext/oneapi/experimental/syclbin_kernel_bundle.hpp>
#define TK_HAVE_SYCLBIN 1
#endif
#endif

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "shim_devices.h"
#include "sycl_shim.h"
#include "tk_plan.h"

namespace {

// Runs `body`, which returns a status; what it throws becomes one.
template <class Body> int32_t guarded(const char *what, Body body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return fail(TK_ERR_MEMORY, string(what) + ": not enough memory");
  } catch (const sycl::exception &error) {
    const bool memory = error.code() == sycl::errc::memory_allocation;
    return fail(memory ? TK_ERR_MEMORY : TK_ERR_DEVICE, string(what) + ": " + error.what());
  } catch (const std::exception &error) {
    return fail(TK_ERR_DEVICE, string(what) + ": " + error.what());
  } catch (...) {
    return fail(TK_ERR_DEVICE, string(what) + ": an exception without a name");
  }
}

// ---------------------------------------------------------------- kernels

typedef sycl::kernel_bundle<sycl::bundle_state::executable> Bundle;

#if defined(TK_AHEAD)

struct Kernels {
  void (*start)(sycl::handler &, const sycl::nd_range<3> &, void *const *) = nullptr;
};

int32_t load(const tk_sycl_program &program, const Candidate &, const sycl::context &, vector<Kernels> *kernels,
             vector<Bundle> *) {
  for (int32_t i = 0; i < program.n_functions; i++) {
    Kernels found;
    for (const tk_sycl_launcher &one : tk_sycl_launchers)
      if (std::strcmp(one.name, program.functions[i]) == 0) found.start = one.start;
    if (!found.start) return fail(TK_ERR_LIBRARY, string("the kernel ") + program.functions[i] + " is missing");
    kernels->push_back(found);
  }
  return TK_OK;
}

void submit(sycl::handler &handler, const Kernels &kernel, const sycl::nd_range<3> &range, void *const *args,
            int32_t) {
  kernel.start(handler, range, args);
}

#else

namespace experimental = sycl::ext::oneapi::experimental;

struct Kernels {
  sycl::kernel kernel;
};

// No fast mathematics: exp and rsqrt would become those with 11 bits.
const vector<string> build_options = {"-O3", "-ffp-contract=fast", "-fno-strict-aliasing", "-fwrapv"};

// For kernels of explicit vectors, which are those without a TK_SUBGROUP: optimisation before SPIR-V makes masked
// stores of them, which SPIR-V lacks, and the device's compiler does all of it again.
const vector<string> vector_options = {"-Xclang", "-disable-llvm-passes"};
constexpr char subgroup_word[] = "\n#define TK_SUBGROUP ";

// The time of Intel's compiler for processors grows with the square of the kernels in one piece, so each becomes
// one. Where the binary is wanted, the text comes in small pieces already: of several, only one is given away.
constexpr char split_option[] = "-fsycl-device-code-split=per_kernel";

Bundle build_source(const tk_sycl_image &image, const Candidate &chosen, const sycl::context &context) {
  const string source(reinterpret_cast<const char *>(image.data), static_cast<size_t>(image.bytes));
  vector<string> options = build_options;
  if (source.find(subgroup_word) == string::npos)
    options.insert(options.end(), vector_options.begin(), vector_options.end());
  if (string(image.kind) == "source") options.push_back(split_option);
  auto bundle = experimental::create_kernel_bundle_from_source(context, experimental::source_language::sycl, source);
  return experimental::build(bundle, vector<sycl::device>{chosen.device},
                             experimental::properties{experimental::build_options{options}});
}

// The compiler's messages are the library's fault, not the device's.
int32_t build_from_source(const tk_sycl_image &image, const Candidate &chosen, const sycl::context &context,
                          vector<Bundle> *bundles) {
  try {
    bundles->push_back(build_source(image, chosen, context));
    return TK_OK;
  } catch (const sycl::exception &error) {
    if (error.code() != sycl::errc::build) throw;
    return fail(TK_ERR_LIBRARY, string("the SYCL runtime refuses the kernels: ") + error.what());
  }
}

Bundle load_binary(const tk_sycl_image &image, const Candidate &chosen, const sycl::context &context) {
#if defined(TK_HAVE_SYCLBIN)
  char *data = const_cast<char *>(reinterpret_cast<const char *>(image.data));
  return experimental::get_kernel_bundle<sycl::bundle_state::executable>(
      context, vector<sycl::device>{chosen.device}, sycl::span<char>(data, static_cast<size_t>(image.bytes)));
#else
  throw sycl::exception(sycl::make_error_code(sycl::errc::feature_not_supported), "SYCLBIN");
#endif
}

// All binaries for this device. One may be for another processor or another version of the runtime: then none is
// taken, and `refused` says why.
void load_binaries(const tk_sycl_program &program, const Candidate &chosen, const sycl::context &context,
                   vector<Bundle> *bundles, string *refused) {
  try {
    for (int32_t i = 0; i < program.n_images; i++)
      if (string(program.images[i].kind) == "syclbin" && fits(program.images[i].arch, chosen))
        bundles->push_back(load_binary(program.images[i], chosen, context));
  } catch (const std::exception &error) {
    bundles->clear();
    *refused = string(" (the binary in the library was refused: ") + error.what() + ")";
  }
}

int32_t load(const tk_sycl_program &program, const Candidate &chosen, const sycl::context &context,
             vector<Kernels> *kernels, vector<Bundle> *bundles) {
  string refused, suffix;
  load_binaries(program, chosen, context, bundles, &refused);
  for (int32_t i = 0; i < program.n_images; i++) {
    const tk_sycl_image &image = program.images[i];
    const string kind = image.kind;
    if (kind == "kernel-suffix") suffix = string((const char *)image.data, (size_t)image.bytes);
    if (!bundles->empty() || (kind != "source" && kind != "piece")) continue;
    sycl::device device = chosen.device;
    if (!device.ext_oneapi_can_build(experimental::source_language::sycl))
      return fail(TK_ERR_HOST, "the SYCL runtime here cannot compile kernels" + refused +
                                   "; install the package intel-sycl-rt from PyPI with its libsycl-jit");
    if (const int32_t status = build_from_source(image, chosen, context, bundles)) return status;
  }
  if (bundles->empty()) return fail(TK_ERR_DEVICE, "the library holds no kernels for " + chosen.text() + refused);
  for (int32_t i = 0; i < program.n_functions; i++) {
    const string name = program.functions[i] + suffix;
    const auto has = [&](Bundle &bundle) { return bundle.ext_oneapi_has_kernel(name); };
    const auto found = std::find_if(bundles->begin(), bundles->end(), has);
    if (found == bundles->end()) return fail(TK_ERR_LIBRARY, "the kernel " + name + " is missing");
    kernels->push_back({found->ext_oneapi_get_kernel(name)});
  }
  return TK_OK;
}

void submit(sycl::handler &handler, const Kernels &kernel, const sycl::nd_range<3> &range, void *const *args,
            int32_t n_args) {
  for (int32_t i = 0; i < n_args; i++) handler.set_arg(i, args[i]);
  handler.parallel_for(range, kernel.kernel);
}

#endif

}  // namespace

// ---------------------------------------------------------------- the interface

struct tk_sycl_device {
  Candidate chosen;
  sycl::context context;
  vector<Kernels> kernels;
  vector<Bundle> bundles;
  string text;
  void *tick;  // marks write here: an event with a time is all that is wanted

  // In the context that every sycl::queue of this device is in unless told otherwise: the caller's can be taken.
  explicit tk_sycl_device(const Candidate &one)
      : chosen(one), context(sycl::queue(one.device).get_context()), text(one.text()),
        tick(sycl::malloc_device(1, one.device, context)) {}
  ~tk_sycl_device() { sycl::free(tick, context); }
};

namespace {

// Errors that happen while nobody waits: kept until finish().
struct Trouble {
  string message;
  void note(const sycl::exception_list &errors) {
    for (const std::exception_ptr &error : errors) {
      try {
        std::rethrow_exception(error);
      } catch (const std::exception &known) {
        message = known.what();
      } catch (...) {
        message = "an exception without a name";
      }
    }
  }
};

}  // namespace

struct tk_sycl_queue {
  tk_sycl_device &device;
  std::shared_ptr<Trouble> trouble = std::make_shared<Trouble>();
  bool own;
  bool profiling = false;
  sycl::queue queue;
  vector<sycl::event> marks;
  vector<std::chrono::steady_clock::time_point> times;

  explicit tk_sycl_queue(tk_sycl_device &one) : device(one), own(true), queue(make(false)) {}
  tk_sycl_queue(tk_sycl_device &one, sycl::queue &given)
      : device(one), own(false),
        profiling(given.has_property<sycl::property::queue::enable_profiling>()), queue(given) {}

  sycl::queue make(bool timed) const {
    const auto handler = [kept = trouble](sycl::exception_list errors) { kept->note(errors); };
    using namespace sycl::property::queue;
    const sycl::property_list plain{in_order{}}, with_times{in_order{}, enable_profiling{}};
    return sycl::queue(device.context, device.chosen.device, handler, timed ? with_times : plain);
  }

  // Times are taken only where they are asked for: they cost each launch an event.
  void want_times() {
    if (profiling || !own) return;
    queue.wait_and_throw();
    queue = make(true);
    profiling = true;
  }
};

namespace {

const char *shim_last_error() { return last_message.c_str(); }

int32_t shim_open(const tk_sycl_program *program, const char *selector, tk_sycl_device **device) {
  return guarded("the SYCL runtime cannot load the model", [&]() -> int32_t {
    Candidate chosen{sycl::device(sycl::default_selector_v), "", "", "", 0, 0};
    if (const int32_t status = choose(*program, lower(selector ? selector : ""), &chosen)) return status;
    auto opened = std::make_unique<tk_sycl_device>(chosen);
    if (const int32_t status = load(*program, chosen, opened->context, &opened->kernels, &opened->bundles))
      return status;
    *device = opened.release();
    return TK_OK;
  });
}

const char *shim_describe(const tk_sycl_device *device) { return device->text.c_str(); }

int32_t shim_allocate(tk_sycl_device *device, int64_t bytes, void **memory) {
  return guarded("memory of the device", [&]() -> int32_t {
    const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
    *memory = sycl::aligned_alloc_device(TK_ALIGNMENT, size, device->chosen.device, device->context);
    if (*memory) return TK_OK;
    return fail(TK_ERR_MEMORY, "the device has no " + std::to_string(size) + " bytes left: " + device->text);
  });
}

void shim_release(tk_sycl_device *device, void *memory) {
  if (memory) guarded("memory of the device", [&]() -> int32_t { return sycl::free(memory, device->context), TK_OK; });
}

void shim_close(tk_sycl_device *device) {
  guarded("closing the device", [&]() -> int32_t { return delete device, TK_OK; });
}

int32_t shim_open_queue(tk_sycl_device *device, void *stream, tk_sycl_queue **opened) {
  return guarded("the queue", [&]() -> int32_t {
    if (!stream) return *opened = new tk_sycl_queue(*device), TK_OK;
    sycl::queue &given = *static_cast<sycl::queue *>(stream);
    if (!given.is_in_order()) return fail(TK_ERR_ARGUMENT, "the caller's sycl::queue is not in order");
    if (given.get_device() != device->chosen.device)
      return fail(TK_ERR_ARGUMENT, "the caller's sycl::queue is not on the device of the model: " + device->text);
    if (given.get_context() != device->context)
      return fail(TK_ERR_ARGUMENT, "the caller's sycl::queue is not in the context of the model");
    *opened = new tk_sycl_queue(*device, given);
    return TK_OK;
  });
}

void shim_close_queue(tk_sycl_queue *queue) {
  guarded("closing the queue", [&]() -> int32_t {
    queue->queue.wait();
    delete queue;
    return TK_OK;
  });
}

int32_t shim_copy(tk_sycl_queue *queue, void *to, const void *from, int64_t bytes) {
  if (bytes <= 0) return TK_OK;
  return guarded("copying", [&]() -> int32_t {
    queue->queue.memcpy(to, from, static_cast<size_t>(bytes));
    return TK_OK;
  });
}

int32_t shim_launch(tk_sycl_queue *queue, int32_t function, const uint32_t *grid, const uint32_t *block,
                    void *const *args, int32_t n_args) {
  return guarded("starting a kernel", [&]() -> int32_t {
    const sycl::range<3> local(block[2], block[1], block[0]);
    const sycl::range<3> global(local[0] * grid[2], local[1] * grid[1], local[2] * grid[0]);
    const Kernels &kernel = queue->device.kernels[static_cast<size_t>(function)];
    queue->queue.submit([&](sycl::handler &handler) {
      submit(handler, kernel, sycl::nd_range<3>(global, local), args, n_args);
    });
    return TK_OK;
  });
}

int32_t shim_mark(tk_sycl_queue *queue, int32_t number) {
  return guarded("taking the time", [&]() -> int32_t {
    queue->want_times();
    const size_t place = static_cast<size_t>(number);
    if (queue->profiling) {
      if (place >= queue->marks.size()) queue->marks.resize(place + 1);
      queue->marks[place] = queue->queue.memset(queue->device.tick, 0, 1);
      return TK_OK;
    }
    queue->queue.wait_and_throw();  // the caller's queue tells no times
    if (place >= queue->times.size()) queue->times.resize(place + 1);
    queue->times[place] = std::chrono::steady_clock::now();
    return TK_OK;
  });
}

int32_t shim_elapsed(tk_sycl_queue *queue, int32_t from, int32_t to, int64_t *nanoseconds) {
  return guarded("taking the time", [&]() -> int32_t {
    if (queue->profiling) {
      using namespace sycl::info::event_profiling;
      const auto begin = queue->marks.at((size_t)from).get_profiling_info<command_end>();
      const auto end = queue->marks.at((size_t)to).get_profiling_info<command_start>();
      *nanoseconds = from == to || end < begin ? 0 : static_cast<int64_t>(end - begin);
      return TK_OK;
    }
    const auto span = queue->times.at((size_t)to) - queue->times.at((size_t)from);
    *nanoseconds = std::chrono::duration_cast<std::chrono::nanoseconds>(span).count();
    return TK_OK;
  });
}

int32_t shim_finish(tk_sycl_queue *queue) {
  return guarded("running the model", [&]() -> int32_t {
    queue->queue.wait_and_throw();
    if (queue->trouble->message.empty()) return TK_OK;
    const string message = std::move(queue->trouble->message);
    queue->trouble->message.clear();
    return fail(TK_ERR_DEVICE, "running the model: " + message);
  });
}

int32_t shim_content(tk_sycl_device *device, unsigned char **data, int64_t *bytes) {
#if defined(TK_AHEAD) || !defined(TK_HAVE_SYCLBIN)
  (void)device, (void)data, (void)bytes;
  return fail(TK_ERR_HOST, "this SYCL runtime does not give its kernels away");
#else
  return guarded("the kernels as a binary", [&]() -> int32_t {
    const vector<char> content = device->bundles.at(0).ext_oneapi_get_content();
    *data = static_cast<unsigned char *>(std::malloc(content.size()));
    if (!*data) return fail(TK_ERR_MEMORY, "not enough memory");
    std::memcpy(*data, content.data(), content.size());
    *bytes = static_cast<int64_t>(content.size());
    return TK_OK;
  });
#endif
}

constexpr tk_sycl_shim shim = {
    shim_last_error, shim_open,  shim_describe, shim_allocate, shim_release, shim_close,  shim_open_queue,
    shim_close_queue, shim_copy, shim_launch,   shim_mark,     shim_elapsed, shim_finish, shim_content,
};

}  // namespace

extern "C" __attribute__((visibility("default"))) const tk_sycl_shim *tk_sycl_shim_v1(void) { return &shim; }
