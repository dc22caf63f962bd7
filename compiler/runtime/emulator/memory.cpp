// Memory of launches and what is known of it.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "emulator.h"

namespace tk::emu {

Mapping::Mapping(size_t bytes) : bytes_(bytes) {
  if (bytes == 0) return;
  data_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data_ == MAP_FAILED) {
    data_ = nullptr;
    throw std::bad_alloc();
  }
}

Mapping::~Mapping() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

namespace {

// Of an address in shared memory that begins at `low`; elsewhere nothing.
std::string shared_text(const Worker &from, uintptr_t low, uintptr_t address, size_t bytes) {
  for (const SharedArray *array : from.launch.arrays) {
    const uintptr_t start = low + array->offset;
    if (address < start || address >= start + static_cast<uintptr_t>(array->bytes)) continue;
    const uintptr_t offset = address - start;
    if (bytes != 0 && offset % bytes == 0) return "shared " + array->name + text("[%zu]", static_cast<size_t>(offset / bytes));
    return "shared " + array->name + text(" at byte %zu", static_cast<size_t>(offset));
  }
  return "";
}

}  // namespace

std::string global_text(const Launch &launch, uintptr_t address) {
  for (const Region &region : launch.regions) {
    const uintptr_t start = reinterpret_cast<uintptr_t>(region.memory);
    if (address < start || address >= start + static_cast<uintptr_t>(region.bytes)) continue;
    return region.names + text("[%lld]", static_cast<long long>(address - start) / static_cast<long long>(region.element_bytes));
  }
  return "";
}

std::string element_text(const Worker &from, uintptr_t address, size_t bytes) {
  std::string found = global_text(from.launch, address);
  if (found.empty()) found = shared_text(from, from.shared_low, address, bytes);
  if (found.empty() && from.cluster != nullptr)
    if (const Worker *owner = from.cluster->owner_of(from, address))
      found = shared_text(from, owner->kept_low, address, bytes) + " of " + block_text(*owner);
  return found.empty() ? "memory" : found;
}

}  // namespace tk::emu
