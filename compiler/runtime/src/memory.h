// Page-aligned memory from the system: huge pages where it is large, touched first by whoever uses it first.
#ifndef TK_MEMORY_H
#define TK_MEMORY_H

#include <cstddef>
#include <cstdint>

namespace tk {

// a * b, or -1 when an operand is negative or the product overflows.
int64_t checked_product(int64_t a, int64_t b);

// Owns one mapping. Its pages are zero until written and take no memory until touched, so on a machine with
// several memory nodes they lie near the thread that first uses them.
class Mapping {
 public:
  Mapping() = default;
  ~Mapping() { reset(); }
  Mapping(const Mapping &) = delete;
  Mapping &operator=(const Mapping &) = delete;

  // Replaces the mapping; false when the system has no memory. `bytes` may be 0.
  bool allocate(int64_t bytes);
  void reset();
  unsigned char *data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void *base_ = nullptr;
  size_t length_ = 0;
  unsigned char *data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace tk

#endif
