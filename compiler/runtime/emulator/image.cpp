// What the emulator knows of the library that it is part of: its shared arrays, from its own symbols.
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "emulator.h"

namespace tk::emu {

__attribute__((used)) thread_local unsigned char anchor = 1;

namespace {

// "_ZZ7tk_k0_0E2s0": variable s0 of function tk_k0_0; also with what a compiler adds at the end.
bool read_local_name(const char *symbol, std::string *function, std::string *variable) {
  if (std::strncmp(symbol, "_ZZ", 3) != 0) return false;
  const auto take = [](const char *from, std::string *name) -> const char * {
    char *rest = nullptr;
    const unsigned long length = std::strtoul(from, &rest, 10);
    if (rest == from || length == 0 || std::strlen(rest) < length) return nullptr;
    name->assign(rest, length);
    return rest + length;
  };
  const char *rest = take(symbol + 3, function);
  return rest != nullptr && *rest == 'E' && take(rest + 1, variable) != nullptr;
}

void read_symbol(const ElfW(Sym) & symbol, const char *name, Image *image) {
  if ((symbol.st_info & 0xf) != STT_TLS || symbol.st_shndx == SHN_UNDEF) return;
  image->thread_bytes = std::max<uintptr_t>(image->thread_bytes, symbol.st_value + symbol.st_size);
  if (std::strcmp(name, "_ZN2tk3emu6anchorE") == 0) image->anchor_offset = symbol.st_value;
  SharedArray array;
  if (!read_local_name(name, &array.kernel, &array.name) || array.name.compare(0, 10, "tk_emu_gap") == 0) return;
  array.offset = symbol.st_value;
  array.bytes = static_cast<int64_t>(symbol.st_size);
  image->arrays.push_back(array);
}

void read_symbols(Image *image) {
  const int file = open(image->path.c_str(), O_RDONLY | O_CLOEXEC);
  struct stat facts;
  if (file < 0 || fstat(file, &facts) != 0) return;
  const size_t bytes = static_cast<size_t>(facts.st_size);
  void *mapped = mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  if (mapped == MAP_FAILED) return;
  const unsigned char *data = static_cast<const unsigned char *>(mapped);
  const ElfW(Ehdr) *head = reinterpret_cast<const ElfW(Ehdr) *>(data);
  const ElfW(Shdr) *sections = reinterpret_cast<const ElfW(Shdr) *>(data + head->e_shoff);
  for (int i = 0; i < head->e_shnum; ++i) {
    if (sections[i].sh_type != SHT_SYMTAB) continue;
    const char *names = reinterpret_cast<const char *>(data + sections[sections[i].sh_link].sh_offset);
    const ElfW(Sym) *symbols = reinterpret_cast<const ElfW(Sym) *>(data + sections[i].sh_offset);
    for (size_t n = 0; n < sections[i].sh_size / sizeof *symbols; ++n)
      read_symbol(symbols[n], names + symbols[n].st_name, image);
  }
  munmap(mapped, bytes);
  std::sort(image->arrays.begin(), image->arrays.end(),
            [](const SharedArray &a, const SharedArray &b) { return a.offset < b.offset; });
}

int find_extent(dl_phdr_info *info, size_t, void *data) {
  Image *image = static_cast<Image *>(data);
  if (info->dlpi_addr != image->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) &part = info->dlpi_phdr[i];
    if (part.p_type != PT_LOAD) continue;
    image->low = std::min<uintptr_t>(image->low, image->base + part.p_vaddr);
    image->high = std::max<uintptr_t>(image->high, image->base + part.p_vaddr + part.p_memsz);
  }
  return 1;
}

Image read_image() {
  Image image = {};
  Dl_info info = {};
  dladdr(reinterpret_cast<void *>(&read_image), &info);
  image.path = info.dli_fname == nullptr ? "" : info.dli_fname;
  image.base = reinterpret_cast<uintptr_t>(info.dli_fbase);
  image.low = std::numeric_limits<uintptr_t>::max();
  dl_iterate_phdr(find_extent, &image);
  read_symbols(&image);
  return image;
}

}  // namespace

const Image &image() {
  static const Image found = read_image();
  return found;
}

}  // namespace tk::emu
