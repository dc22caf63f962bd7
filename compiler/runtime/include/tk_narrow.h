/* Floats of 16 and 8 bits: stored as integers, computed with as f32.
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even; what is too big becomes infinity, or NaN in
 * f8e4m3, which has no infinity (the rules of ml_dtypes). Subnormal numbers are kept, unless the processor is
 * set to flush them.
 */
#ifndef TK_NARROW_H
#define TK_NARROW_H

#include "tk_vector.h"

/* `mantissa` bits, exponent of `bias`; codes from `infinity` on, without the sign, are infinity and NaN. */
template <int total_bits, int mantissa_bits, int exponent_bias, uint32_t infinity_code, bool infinite>
struct tk_format {
    static constexpr int bits = total_bits, mantissa = mantissa_bits, bias = exponent_bias;
    static constexpr uint32_t infinity = infinity_code;
    static constexpr bool has_infinity = infinite;
};
typedef tk_format<16, 10, 15, 0x7c00, true> tk_format_f16;
typedef tk_format<8, 3, 7, 0x7f, false> tk_format_f8e4m3;
typedef tk_format<8, 2, 15, 0x7c, true> tk_format_f8e5m2;

/* `codes` hold one value of format F in the low bits of each lane. */
template <class F, class U> TK_INLINE tk_vec<float, tk_lanes<U>> tk_widen(U codes) {
    typedef tk_vec<float, tk_lanes<U>> V;
    const U sign = (codes >> (F::bits - 1)) << 31;
    const U magnitude = codes & tk_splat<U>((1u << (F::bits - 1)) - 1);
    /* As a float the shifted bits are too small by a power of two, subnormal ones too. */
    const V scaled = tk_bitcast<V>(magnitude << (23 - F::mantissa)) * tk_splat<V>(0x1p127f);
    const V value = scaled * (tk_splat<V>(1.0f) / tk_splat<V>((float)(1ull << F::bias)));
    const U special = F::has_infinity ? (magnitude << (23 - F::mantissa)) | tk_splat<U>(0x7f800000u)
                                      : tk_splat<U>(0x7fc00000u);
    const auto finite = magnitude < tk_splat<U>(F::infinity);
    return tk_bitcast<V>((finite ? tk_bitcast<U>(value) : special) | sign);
}

template <class F, class V> TK_INLINE tk_bits<V> tk_narrow(V x) {
    typedef tk_bits<V> U;
    constexpr int shift = 23 - F::mantissa;
    const U bits = tk_bitcast<U>(x), sign = (bits >> 31) << (F::bits - 1);
    const U size = bits & tk_splat<U>(0x7fffffffu);
    /* Normal numbers: change the bias and round by adding half of the last place, less one where that is even. */
    const U odd = (size >> shift) & tk_splat<U>(1u);
    const U normal = (size - tk_splat<U>((uint32_t)(127 - F::bias) << 23) + odd + ((1u << (shift - 1)) - 1)) >> shift;
    /* Subnormal ones: the floating-point unit rounds when it adds a number with the last place where it is wanted. */
    const U anchor = tk_splat<U>((uint32_t)(127 + 1 - F::bias + shift) << 23);
    const U subnormal = tk_bitcast<U>(tk_bitcast<V>(size) + tk_bitcast<V>(anchor)) - anchor;
    const auto is_normal = size >= tk_splat<U>((uint32_t)(127 + 1 - F::bias) << 23);
    const U code = is_normal ? normal : subnormal;
    const U not_a_number = tk_splat<U>(F::has_infinity ? F::infinity | 1u << (F::mantissa - 1) : F::infinity);
    const auto overflow = code > tk_splat<U>(F::infinity);
    const U bounded = (overflow | (size >= tk_splat<U>(0x7f800000u))) ? tk_splat<U>(F::infinity) : code;
    return (size > tk_splat<U>(0x7f800000u) ? not_a_number : bounded) | sign;
}

template <class V> TK_INLINE tk_vec<float, tk_lanes<V>> tk_bf16_to_f32(V codes) {
    typedef tk_vec<float, tk_lanes<V>> F;
    return tk_bitcast<F>(tk_convert<uint32_t>(codes) << 16);
}
template <class V> TK_INLINE tk_vec<uint16_t, tk_lanes<V>> tk_f32_to_bf16(V x) {
    typedef tk_bits<V> U;
    const U bits = tk_bitcast<U>(x);
    const U rounded = (bits + ((bits >> 16) & tk_splat<U>(1u)) + 0x7fffu) >> 16;
    const U not_a_number = (bits >> 16) | tk_splat<U>(0x40u);
    return tk_convert<uint16_t>(x == x ? rounded : not_a_number);
}

#define TK_DECLARE_NARROW(name, storage)                                                  \
    template <class V> TK_INLINE tk_vec<float, tk_lanes<V>> tk_##name##_to_f32(V codes) { \
        return tk_widen<tk_format_##name>(tk_convert<uint32_t>(codes));                   \
    }                                                                                     \
    template <class V> TK_INLINE tk_vec<storage, tk_lanes<V>> tk_f32_to_##name(V x) {     \
        return tk_convert<storage>(tk_narrow<tk_format_##name>(x));                       \
    }
TK_DECLARE_NARROW(f16, uint16_t)
TK_DECLARE_NARROW(f8e4m3, uint8_t)
TK_DECLARE_NARROW(f8e5m2, uint8_t)

#endif /* TK_NARROW_H */
