// The side of a model library that speaks SYCL; see sycl_shim.h. Built in two ways: by the host's C++ compiler,
// for kernels that the runtime's own compiler makes ("syclbin", "source"), and by DPC++ with -DTK_AHEAD behind
// the kernels themselves.
#if !defined(TK_AHEAD)
#define SYCL_DISABLE_FSYCL_SYCLHPP_WARNING
#include <sycl/sycl.hpp>
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

#include "sycl_shim.h"
#include "tk_plan.h"

namespace {

using std::string;
using std::vector;

thread_local string last_message;

int32_t fail(int32_t status, const string &message) {
  last_message = message;
  return status;
}

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

// ---------------------------------------------------------------- devices and their names

string lower(string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

bool starts(const string &text, const char *with) { return text.rfind(with, 0) == 0; }

const char *backend_name(sycl::backend backend) {
  switch (backend) {
    case sycl::backend::opencl: return "opencl";
    case sycl::backend::ext_oneapi_level_zero: return "level_zero";
    case sycl::backend::ext_oneapi_cuda: return "cuda";
    case sycl::backend::ext_oneapi_hip: return "hip";
    default: return "other";
  }
}

const char *type_name(const sycl::device &device) {
  return device.is_cpu() ? "cpu" : device.is_gpu() ? "gpu" : device.is_accelerator() ? "accelerator" : "device";
}

// A device with its numbers: among all of its backend, and among all of its type.
struct Candidate {
  sycl::device device;
  string backend, type, name;
  int in_backend, in_type;

  string text() const {
    return backend + ":" + std::to_string(in_backend) + " (" + type + ":" + std::to_string(in_type) + ") " + name;
  }
};

vector<Candidate> all_devices() {
  vector<Candidate> found;
  for (const sycl::platform &platform : sycl::platform::get_platforms()) {
    for (const sycl::device &device : platform.get_devices()) {
      Candidate one{device, backend_name(device.get_backend()), type_name(device), "", 0, 0};
      one.name = device.get_info<sycl::info::device::name>() + ", " + platform.get_info<sycl::info::platform::name>();
      for (const Candidate &other : found) {
        one.in_backend += other.backend == one.backend;
        one.in_type += other.type == one.type;
      }
      found.push_back(one);
    }
  }
  return found;
}

string listed(const vector<Candidate> &devices) {
  string text;
  for (const Candidate &one : devices) text += (text.empty() ? "" : "; ") + one.text();
  return text.empty() ? "none" : text;
}

// "cpu", "gpu:0", "cuda", "level_zero:1", or a part of the name; a number alone counts those that fit.
bool selects(const string &selector, const Candidate &one) {
  if (selector.empty() || selector.find_first_not_of("0123456789") == string::npos) return true;
  const size_t colon = selector.find(':');
  const string word = selector.substr(0, colon);
  if (word == one.type || word == one.backend) {
    if (colon == string::npos) return true;
    return selector.substr(colon + 1) == std::to_string(word == one.type ? one.in_type : one.in_backend);
  }
  return lower(one.name).find(selector) != string::npos;
}

// ---------------------------------------------------------------- which image fits which device

// "8.6" of a CUDA device is sm_86; HIP's is "gfx90a:sramecc+:xnack-". Empty where the runtime does not tell.
string device_arch(const Candidate &one) {
  const string version = one.device.get_info<sycl::info::device::version>();
  if (one.backend == "hip") return starts(version, "gfx") ? version.substr(0, version.find(':')) : "";
  const size_t dot = version.find('.');
  if (one.backend != "cuda" || dot == string::npos) return "";
  const int major = std::atoi(version.c_str()), minor = std::atoi(version.c_str() + dot + 1);
  return major == 0 ? "" : "sm_" + std::to_string(major * 10 + minor);
}

// Architectures are named as DPC++ names them: spir64_x86_64 runs on processors, spir64 on GPUs that the driver
// compiles for, sm_* on NVIDIA's of that generation or a later one, gfx* on exactly those.
bool fits(const string &arch, const Candidate &one) {
  if (arch.empty()) return true;
  if (starts(arch, "spir64_x86_64")) return one.type == "cpu";
  if (starts(arch, "spir64")) return one.type == "gpu" && (one.backend == "opencl" || one.backend == "level_zero");
  const string found = device_arch(one);
  if (starts(arch, "sm_")) {
    if (one.backend != "cuda") return false;
    return found.empty() || std::atoi(found.c_str() + 3) >= std::atoi(arch.c_str() + 3);
  }
  if (starts(arch, "gfx")) return one.backend == "hip" && (found.empty() || found == arch);
  return false;
}

// Of several drivers for one processor, that of Intel is the one that this runtime is made for.
int rank(const Candidate &one) {
  if (one.backend != "opencl") return 0;
  return one.name.find("Intel(R) OpenCL") != string::npos || one.name.find("Intel") == 0 ? 1 : 2;
}

// The architectures that the library has kernels for.
vector<string> kernel_archs(const tk_sycl_program &program) {
  vector<string> archs;
  for (int32_t i = 0; i < program.n_images; i++) {
    const string kind = program.images[i].kind, arch = program.images[i].arch;
    if (kind != "kernel-suffix" && !std::count(archs.begin(), archs.end(), arch)) archs.push_back(arch);
  }
  return archs;
}

bool fits_program(const tk_sycl_program &program, const vector<string> &archs, const Candidate &one) {
#if defined(TK_AHEAD)
  (void)archs;
  return fits(program.own_arch, one);
#else
  (void)program;
  return std::any_of(archs.begin(), archs.end(), [&](const string &arch) { return fits(arch, one); });
#endif
}

string joined(const vector<string> &words) {
  string text;
  for (const string &word : words) text += (text.empty() ? "" : ", ") + (word.empty() ? string("any") : word);
  return text;
}

int32_t choose(const tk_sycl_program &program, const string &selector, Candidate *chosen) {
  const vector<Candidate> devices = all_devices();
  const vector<string> archs = kernel_archs(program);
  const string target = program.target;
  vector<Candidate> named, fitting;
  for (const Candidate &one : devices)
    if (selects(selector, one)) named.push_back(one);
  for (const Candidate &one : named)
    if (fits_program(program, archs, one)) fitting.push_back(one);
  if (devices.empty())
    return fail(TK_ERR_DEVICE, "the SYCL runtime finds no device; install a driver, for processors the package "
                               "intel-opencl-rt from PyPI, and see `tk doctor`");
  if (named.empty())
    return fail(TK_ERR_DEVICE, "no SYCL device is called `" + selector + "`; there are: " + listed(devices));
  if (fitting.empty()) {
    const string arch = device_arch(named[0]);
    return fail(TK_ERR_DEVICE, "this library has kernels for " + joined(archs) + ", for none of the devices here: " +
                                   listed(named) + "; compile for one: tk compile MODEL.onnx --target " +
                                   target.substr(0, target.find(':')) + " --arch " + (arch.empty() ? "ARCH" : arch));
  }
  std::stable_sort(fitting.begin(), fitting.end(),
                   [](const Candidate &a, const Candidate &b) { return rank(a) < rank(b); });
  size_t number = 0;
  if (!selector.empty() && selector.find_first_not_of("0123456789") == string::npos) number = std::stoul(selector);
  if (number >= fitting.size())
    return fail(TK_ERR_DEVICE, "there is no device number " + selector + "; devices that fit, from 0: " +
                                   listed(fitting));
  *chosen = fitting[number];
  return TK_OK;
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
