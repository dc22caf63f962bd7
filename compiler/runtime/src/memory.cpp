#include "memory.h"

#include <sys/mman.h>

namespace tk {
namespace {

constexpr int64_t kPage = 4096;
constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr int64_t kLargest = int64_t{1} << 46;  // no machine has more; keeps the sums below from overflowing

}  // namespace

int64_t checked_product(int64_t a, int64_t b) {
  int64_t product;
  if (a < 0 || b < 0 || __builtin_mul_overflow(a, b, &product)) return -1;
  return product;
}

bool Mapping::allocate(int64_t bytes) {
  reset();
  if (bytes < 0 || bytes > kLargest) return false;
  // Streaming through small pages costs up to a third of the bandwidth; half a huge page may be wasted for it.
  const bool huge = bytes >= kHugePage / 2;
  const int64_t align = huge ? kHugePage : kPage;
  const int64_t rounded = ((bytes == 0 ? 1 : bytes) + align - 1) / align * align;
  length_ = static_cast<size_t>(rounded + (huge ? align : 0));
  base_ = mmap(nullptr, length_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base_ == MAP_FAILED) {
    base_ = nullptr;
    length_ = 0;
    return false;
  }
  const uintptr_t start = reinterpret_cast<uintptr_t>(base_);
  const uintptr_t mask = static_cast<uintptr_t>(align) - 1;
  const uintptr_t offset = ((start + mask) & ~mask) - start;
  data_ = static_cast<unsigned char *>(base_) + offset;
  bytes_ = bytes;
  if (huge) madvise(data_, length_ - offset, MADV_HUGEPAGE);  // advice: nothing is lost when it is refused
  return true;
}

void Mapping::reset() {
  if (base_ != nullptr) munmap(base_, length_);
  base_ = nullptr;
  length_ = 0;
  data_ = nullptr;
  bytes_ = 0;
}

}  // namespace tk
