// Devices of the SYCL runtime: their names, which one a selector means, and which image fits which. Part of shim.cpp.
#ifndef TK_SHIM_DEVICES_H
#define TK_SHIM_DEVICES_H

#include <sycl/sycl.hpp>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string>
#include <vector>

#include "sycl_shim.h"

namespace {

using std::string;
using std::vector;

thread_local string last_message;

int32_t fail(int32_t status, const string &message) {
  last_message = message;
  return status;
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

// Whether a GPU of Intel has the tiles that kernels for an architecture use; yes where the runtime does not tell.
bool has_tiles(const string &arch, const Candidate &one) {
#if defined(SYCL_EXT_ONEAPI_DEVICE_ARCHITECTURE)
  using sycl::ext::oneapi::experimental::architecture;
  const auto own = one.device.get_info<sycl::ext::oneapi::experimental::info::device::architecture>();
  if (starts(arch, "intel_gpu_pvc")) return own == architecture::intel_gpu_pvc;
  return own == architecture::intel_gpu_dg2_g10 || own == architecture::intel_gpu_dg2_g11 ||
         own == architecture::intel_gpu_dg2_g12;
#else
  (void)arch, (void)one;
  return true;
#endif
}

// Architectures are named as DPC++ names them: spir64_x86_64 runs on processors, spir64 on GPUs that the driver
// compiles for, intel_gpu_pvc and intel_gpu_dg2_g10 on those that have their tiles, sm_* on NVIDIA's of that generation or a later one, gfx* on exactly those.
bool fits(const string &arch, const Candidate &one) {
  if (arch.empty()) return true;
  if (starts(arch, "spir64_x86_64")) return one.type == "cpu";
  const bool intel = one.type == "gpu" && (one.backend == "opencl" || one.backend == "level_zero");
  if (starts(arch, "spir64")) return intel;
  if (starts(arch, "intel_gpu_")) return intel && has_tiles(arch, one);
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

}  // namespace

#endif
