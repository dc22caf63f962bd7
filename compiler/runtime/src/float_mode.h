// The floating-point settings under which kernels run: IEEE 754 defaults, or with subnormals as zero.
#ifndef TK_FLOAT_MODE_H
#define TK_FLOAT_MODE_H

#include <cstdint>

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif !defined(__aarch64__)
#error "the runtime knows the floating-point control register of x86-64 and aarch64 only"
#endif

namespace tk {

#if defined(__x86_64__)
using FloatMode = uint32_t;
constexpr FloatMode kFloatDefault = 0x1f80;         // all exceptions masked, round to nearest
constexpr FloatMode kFloatFlush = 0x1f80 | 0x8040;  // flush to zero, denormals are zero
inline FloatMode float_mode() { return _mm_getcsr(); }
inline void set_float_mode(FloatMode mode) { _mm_setcsr(mode); }
#else
using FloatMode = uint64_t;
constexpr FloatMode kFloatDefault = 0;
constexpr FloatMode kFloatFlush = 1u << 24;
inline FloatMode float_mode() {
  FloatMode mode;
  __asm__ volatile("mrs %0, fpcr" : "=r"(mode));
  return mode;
}
inline void set_float_mode(FloatMode mode) { __asm__ volatile("msr fpcr, %0" : : "r"(mode)); }
#endif

// Sets a mode for the life of the object. Exception flags that were raised meanwhile are dropped.
class FloatScope {
 public:
  explicit FloatScope(bool flush) : saved_(float_mode()) { set_float_mode(flush ? kFloatFlush : kFloatDefault); }
  ~FloatScope() { set_float_mode(saved_); }
  FloatScope(const FloatScope &) = delete;
  FloatScope &operator=(const FloatScope &) = delete;

 private:
  FloatMode saved_;
};

}  // namespace tk

#endif
