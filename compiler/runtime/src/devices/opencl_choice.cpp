// The loader of OpenCL, and which of the devices that it offers a library takes.
//
// The arch of an image names what it is for: `cpu`, or the vendor of a GPU. A selector is a number among the devices
// of that kind, or a part of the name of a platform, else of a device (`intel`, `portable`, `rtx`), with a number
// behind a colon where several match (`intel:1`). `any:` in front of it allows devices of other kinds: a processor
// runs a GPU's kernels, slowly, which is how they are checked where there is no GPU.

#include "opencl_choice.h"

#include <dlfcn.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "error.h"

namespace tk::cl {
namespace {

constexpr char kAnyKind[] = "any:";

// A library whose own libraries lie beside it, where the dynamic linker does not look: those are opened first.
void *open_beside(const std::string &folder, const std::string &name, int depth = 0) {
  constexpr int kDeepest = 4;
  const std::string path = folder + "/" + name;
  for (std::string before;;) {
    if (void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL)) return library;
    const std::string message = dlerror();  // "NAME: cannot open shared object file: ..."
    const std::string missing = message.substr(0, message.find(':'));
    if (depth == kDeepest || missing == before || missing.find('/') != std::string::npos) return nullptr;
    if (open_beside(folder, missing, depth + 1) == nullptr) return nullptr;
    before = missing;
  }
}

// What an image is for. Vendor identifiers: of PCI devices (CL_DEVICE_VENDOR_ID).
struct Kind {
  const char *arch;
  Bits type;
  Uint vendors[2];  // none: any
  const char *title;
  const char *install;
};
constexpr Kind kKinds[] = {
    {"cpu",
     kDeviceTypeCpu,
     {0, 0},
     "processor",
     "install PoCL (Debian, Ubuntu: apt install pocl-opencl-icd) or Intel's runtime (pip install dpcpp-cpp-rt)"},
    {"nvidia", kDeviceTypeGpu, {0x10de, 0x10de}, "NVIDIA GPU", "install NVIDIA's driver with its OpenCL library"},
    {"amd", kDeviceTypeGpu, {0x1002, 0x1022}, "AMD GPU", "install rocm-opencl"},
    {"hygon", kDeviceTypeGpu, {0x1d94, 0x1002}, "Hygon DCU", "install DTK, which has the OpenCL driver"},
    {"intel", kDeviceTypeGpu, {0x8086, 0x8086}, "Intel GPU", "install intel-opencl-icd"},
};

const Kind *kind_of(const char *arch) {
  for (const Kind &kind : kKinds)
    if (std::strcmp(kind.arch, arch) == 0) return &kind;
  return nullptr;
}

bool is(const Found &one, const Kind &kind) {
  return (one.type & kind.type) != 0 &&
         (kind.vendors[0] == 0 || one.vendor == kind.vendors[0] || one.vendor == kind.vendors[1]);
}

std::string lowered(std::string text) {
  for (char &c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::vector<Found> all_devices(const Api &api, size_t *platforms) {
  std::vector<Found> found;
  Uint count = 0;
  if (api.clGetPlatformIDs(0, nullptr, &count) != kSuccess) count = 0;
  std::vector<Platform> list(count);
  if (count > 0 && api.clGetPlatformIDs(count, list.data(), nullptr) != kSuccess) list.clear();
  *platforms = list.size();
  for (const Platform platform : list) {
    const auto about = [&](Uint question) {
      return text_of([&](size_t room, void *to, size_t *bytes) {
        return api.clGetPlatformInfo(platform, question, room, to, bytes);
      });
    };
    const std::string title = about(kPlatformName), version = about(kPlatformVersion);
    Uint devices = 0;
    if (api.clGetDeviceIDs(platform, kDeviceTypeAll, 0, nullptr, &devices) != kSuccess) continue;
    std::vector<DeviceId> ids(devices);
    if (devices == 0 || api.clGetDeviceIDs(platform, kDeviceTypeAll, devices, ids.data(), nullptr) != kSuccess)
      continue;
    for (const DeviceId id : ids)
      found.push_back({id, title, version, told(api, id, kDeviceName), asked<Bits>(api, id, kDeviceType, 0),
                       asked<Uint>(api, id, kDeviceVendorId, 0)});
  }
  return found;
}

std::string listed(const std::vector<Found> &devices) {
  std::string text;
  for (const Found &one : devices) text += (text.empty() ? "" : ", ") + one.name + " (" + one.platform + ")";
  return text.empty() ? "none" : text;
}

bool is_number(const std::string &text) {
  return !text.empty() && text.size() < 6 &&
         std::all_of(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Those whose platform, or else whose own name, has the text in it.
std::vector<Found> named(const std::vector<Found> &devices, const std::string &text) {
  std::vector<Found> by_platform, by_name;
  for (const Found &one : devices) {
    if (lowered(one.platform + "\n" + one.version).find(text) != std::string::npos) by_platform.push_back(one);
    if (lowered(one.name).find(text) != std::string::npos) by_name.push_back(one);
  }
  return by_platform.empty() ? by_name : by_platform;
}

tk_status select(const std::vector<Found> &devices, const char *selector, const Kind &kind, Found *chosen) {
  std::string text = lowered(selector);
  std::vector<Found> left = devices;
  size_t number = 0;
  const size_t colon = text.rfind(':');
  const std::string last = colon == std::string::npos ? text : text.substr(colon + 1);
  if (is_number(last)) {
    number = static_cast<size_t>(std::atoi(last.c_str()));
    text = colon == std::string::npos ? std::string() : text.substr(0, colon);
  }
  if (!text.empty() && text != (kind.type == kDeviceTypeCpu ? "cpu" : "gpu")) left = named(devices, text);
  if (number < left.size()) {
    *chosen = left[number];
    return TK_OK;
  }
  return fail(TK_ERR_DEVICE, "there is no OpenCL device '%s' of the kind %s; there are: %s", selector, kind.title,
              listed(devices).c_str());
}

}  // namespace

// Opened once; stays open, as drivers' threads may run until the process ends.
const Api *open_api() {
  static Api api;
  static const bool opened = [] {
    // A runtime that the user names brings its own loader, which takes more drivers from OCL_ICD_FILENAMES.
    const char *root = std::getenv("TK_SYCL_ROOT");
    void *loader = root == nullptr ? nullptr : open_beside(std::string(root) + "/lib", "libOpenCL.so.1");
    for (const char *name : {"libOpenCL.so.1", "libOpenCL.so"})
      if (loader == nullptr) loader = dlopen(name, RTLD_NOW);
    if (loader == nullptr) return false;
    bool whole = true;
#define TK_LOOK_UP(name, result, arguments)                              \
  api.name = reinterpret_cast<decltype(api.name)>(dlsym(loader, #name)); \
  whole = whole && api.name != nullptr;
    TK_OPENCL_FUNCTIONS(TK_LOOK_UP)
    const bool enough = whole;
    TK_OPENCL_NEW_FUNCTIONS(TK_LOOK_UP)
#undef TK_LOOK_UP
    return enough;
  }();
  return opened ? &api : nullptr;
}

std::string told(const Api &api, DeviceId device, Uint question) {
  return text_of(
      [&](size_t room, void *to, size_t *bytes) { return api.clGetDeviceInfo(device, question, room, to, bytes); });
}

tk_status find_device(const Api &api, const Program &program, const char *selector, Found *chosen) {
  const Kind *kind = program.n_images > 0 ? kind_of(program.images[0].arch) : nullptr;
  if (kind == nullptr) return fail(TK_ERR_LIBRARY, "the library holds no kernels that an OpenCL device could run");
  const Kind &wanted = *kind;
  size_t platforms = 0;
  const std::vector<Found> all = all_devices(api, &platforms);
  if (platforms == 0)
    return fail(TK_ERR_HOST, "the OpenCL loader finds no driver (files in /etc/OpenCL/vendors name them); %s",
                wanted.install);
  const bool any = std::strncmp(selector, kAnyKind, sizeof kAnyKind - 1) == 0;
  if (any) selector += sizeof kAnyKind - 1;
  std::vector<Found> fitting;
  for (const Found &one : all)
    if (any || is(one, wanted)) fitting.push_back(one);
  if (fitting.empty())
    return fail(TK_ERR_DEVICE, "no OpenCL driver offers the device that %s runs on, a %s; it offers: %s; %s",
                program.target, wanted.title, listed(all).c_str(), wanted.install);
  if (const tk_status status = select(fitting, selector, wanted, chosen)) return status;
  const Bits svm = asked<Bits>(api, chosen->device, kDeviceSvmCapabilities, 0);
  if ((svm & kSvmCoarseGrain) == 0 || api.clSVMAlloc == nullptr || api.clEnqueueSVMMemcpy == nullptr)
    return fail(TK_ERR_DEVICE, "the OpenCL driver of %s (%s) has no shared virtual memory, which models need; %s",
                chosen->name.c_str(), chosen->platform.c_str(), wanted.install);
  return TK_OK;
}

}  // namespace tk::cl
