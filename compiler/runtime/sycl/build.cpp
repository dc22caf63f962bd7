// tk-sycl-build SHIM SOURCE SUFFIX OUTPUT: builds a piece of a module for the processor through the SYCL runtime and writes
// the binary; prints the device. The exit status is the tk_status of what went wrong, its message on stderr.
#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "sycl_shim.h"

namespace {

bool read_file(const char *path, std::string *content) {
  FILE *file = std::fopen(path, "rb");
  if (!file) return false;
  char part[1 << 16];
  for (size_t count; (count = std::fread(part, 1, sizeof part, file)) > 0;) content->append(part, count);
  return std::fclose(file) == 0;
}

int stop(int status, const char *message) {
  std::fprintf(stderr, "%s\n", message);
  return status;
}

}  // namespace

int main(int count, char **words) {
  std::string source;
  if (count != 5 || !read_file(words[2], &source)) return stop(TK_ERR_ARGUMENT, "SHIM SOURCE SUFFIX OUTPUT");
  void *handle = dlopen(words[1], RTLD_NOW);
  if (!handle) return stop(TK_ERR_HOST, dlerror());
  auto entry = reinterpret_cast<const tk_sycl_shim *(*)(void)>(dlsym(handle, TK_SYCL_SHIM_SYMBOL));
  if (!entry) return stop(TK_ERR_LIBRARY, "the shim has no entry");
  const tk_sycl_shim *shim = entry();
  const auto bytes = [](const char *text) { return reinterpret_cast<const unsigned char *>(text); };
  const tk_sycl_image images[] = {
      {"piece", "spir64_x86_64", bytes(source.data()), static_cast<int64_t>(source.size())},
      {"kernel-suffix", "", bytes(words[3]), static_cast<int64_t>(std::strlen(words[3]))},
  };
  const tk_sycl_program program = {"", images, 2, nullptr, 0, ""};
  tk_sycl_device *device = nullptr;
  if (const int status = shim->open(&program, "", &device)) return stop(status, shim->last_error());
  unsigned char *data = nullptr;
  int64_t size = 0;
  if (const int status = shim->content(device, &data, &size)) return stop(status, shim->last_error());
  FILE *file = std::fopen(words[4], "wb");
  if (!file || std::fwrite(data, 1, static_cast<size_t>(size), file) != static_cast<size_t>(size) || std::fclose(file))
    return stop(TK_ERR_HOST, "cannot write the binary");
  std::printf("%s\n", shim->describe(device));
  std::fflush(stdout);
  std::_Exit(0);  // without the destructors of two runtimes, which have nothing to do
}
