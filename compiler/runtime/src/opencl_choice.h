// Finding an OpenCL device: the loader of the machine, what its drivers offer, and the one that a library takes.
#ifndef TK_OPENCL_CHOICE_H
#define TK_OPENCL_CHOICE_H

#include <cstring>
#include <string>

#include "device.h"
#include "opencl_api.h"

namespace tk::cl {

// The functions of the loader, or null where this machine has none.
const Api *open_api();

struct Found {
  DeviceId device;
  std::string platform, version, name;  // the version names drivers that the platform does not: PoCL
  Bits type;
  Uint vendor;
};

// The device that a selector names among those that the program is for; says what is missing.
tk_status find_device(const Api &api, const Program &program, const char *selector, Found *chosen);

// A text that is asked for twice: for its size, then for itself.
template <class Ask>
std::string text_of(const Ask &ask) {
  size_t bytes = 0;
  if (ask(size_t{0}, nullptr, &bytes) != kSuccess || bytes == 0) return std::string();
  std::string text(bytes, '\0');
  if (ask(bytes, &text[0], nullptr) != kSuccess) return std::string();
  text.resize(std::strlen(text.c_str()));  // without the zero at the end
  return text;
}

template <class T>
T asked(const Api &api, DeviceId device, Uint question, T otherwise) {
  T value = otherwise;
  return api.clGetDeviceInfo(device, question, sizeof value, &value, nullptr) == kSuccess ? value : otherwise;
}

std::string told(const Api &api, DeviceId device, Uint question);

}  // namespace tk::cl

#endif
