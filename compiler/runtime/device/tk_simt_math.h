/* Elementary functions, and floats of 16 and 8 bits, for CUDA and HIP kernels; see tk_simt.h, which stands in front. */
#ifndef TK_SIMT_MATH_H
#define TK_SIMT_MATH_H

/* ---------------------------------------------------------------- elementary functions */

#define TK_VECTOR_FORM_1(name)                                                  \
    template <class T, int n> TK_INLINE tk_vector<T, n> tk_##name(tk_vector<T, n> x) { \
        TK_EACH(n) x.at[i] = tk_##name(x.at[i]);                                \
        return x;                                                               \
    }
#define TK_FUNCTION_1(name, f32, f64)                   \
    TK_INLINE float tk_##name(float x) { return f32(x); }   \
    TK_INLINE double tk_##name(double x) { return f64(x); } \
    TK_VECTOR_FORM_1(name)
#define TK_FUNCTION_2(name, f32, f64)                                                          \
    TK_INLINE float tk_##name(float a, float b) { return f32(a, b); }                          \
    TK_INLINE double tk_##name(double a, double b) { return f64(a, b); }                       \
    template <class T, int n> TK_INLINE tk_vector<T, n> tk_##name(tk_vector<T, n> a, tk_vector<T, n> b) { \
        TK_EACH(n) a.at[i] = tk_##name(a.at[i], b.at[i]);                                      \
        return a;                                                                              \
    }

TK_FUNCTION_1(sqrt, sqrtf, sqrt)
TK_FUNCTION_1(round, rintf, rint)
TK_FUNCTION_1(floor, floorf, floor)
TK_FUNCTION_1(ceil, ceilf, ceil)
TK_FUNCTION_1(trunc, truncf, trunc)
TK_FUNCTION_1(exp, expf, exp)
TK_FUNCTION_1(exp2, exp2f, exp2)
TK_FUNCTION_1(expm1, expm1f, expm1)
TK_FUNCTION_1(log, logf, log)
TK_FUNCTION_1(log2, log2f, log2)
TK_FUNCTION_1(log10, log10f, log10)
TK_FUNCTION_1(log1p, log1pf, log1p)
TK_FUNCTION_1(sin, sinf, sin)
TK_FUNCTION_1(cos, cosf, cos)
TK_FUNCTION_1(tan, tanf, tan)
TK_FUNCTION_1(asin, asinf, asin)
TK_FUNCTION_1(acos, acosf, acos)
TK_FUNCTION_1(atan, atanf, atan)
TK_FUNCTION_1(sinh, sinhf, sinh)
TK_FUNCTION_1(cosh, coshf, cosh)
TK_FUNCTION_1(tanh, tanhf, tanh)
TK_FUNCTION_1(asinh, asinhf, asinh)
TK_FUNCTION_1(acosh, acoshf, acosh)
TK_FUNCTION_1(atanh, atanhf, atanh)
TK_FUNCTION_1(erf, erff, erf)
TK_FUNCTION_1(erfc, erfcf, erfc)
TK_FUNCTION_2(pow, powf, pow)
TK_FUNCTION_2(fmod, fmodf, fmod)
TK_FUNCTION_2(copysign, copysignf, copysign)
TK_FUNCTION_2(atan2, atan2f, atan2)
TK_FUNCTION_2(hypot, hypotf, hypot)

template <class V> TK_INLINE V tk_abs(V x) {
    if constexpr (tk_lanes<V> > 1) {
        TK_EACH(tk_lanes<V>) x.at[i] = tk_abs(x.at[i]);
        return x;
    } else if constexpr (tk_is_f32<V>) {
        return fabsf(x);
    } else if constexpr (tk_is_float<V>) {
        return fabs(x);
    } else {
        return x < 0 ? (V)(0 - (uint64_t)x) : x;
    }
}

/* a * b + c rounded once. */
TK_INLINE float tk_fma(float a, float b, float c) { return fmaf(a, b, c); }
TK_INLINE double tk_fma(double a, double b, double c) { return fma(a, b, c); }
template <class T, int n> TK_INLINE tk_vector<T, n> tk_fma(tk_vector<T, n> a, tk_vector<T, n> b, tk_vector<T, n> c) {
    TK_EACH(n) c.at[i] = tk_fma(a.at[i], b.at[i], c.at[i]);
    return c;
}

/* a * b + c in whatever way is fastest. */
template <class V> TK_INLINE V tk_mad(V a, V b, V c) { return a * b + c; }

/* 1 / sqrt(x), correctly rounded twice (not the approximate instruction). */
template <class V> TK_INLINE V tk_rsqrt(V x) { return tk_splat<V>(1) / tk_sqrt(x); }
template <class V> TK_INLINE V tk_reciprocal(V x) { return tk_splat<V>(1) / x; }

/* exp(x) where x <= 0. */
template <class V> TK_INLINE V tk_exp_nonpositive(V x) { return tk_exp(x); }

/* 1 / (1 + exp(-x)) without overflow: the small exponential goes to the side where it does not cancel. */
template <class V> TK_INLINE V tk_sigmoid(V x) {
    const V e = tk_exp(-tk_abs(x)), one = tk_splat<V>(1);
    return tk_select(x < tk_splat<V>(0), e, one) / (one + e);
}

/* -1, 0 or 1; NaN for NaN. */
template <class V> TK_INLINE V tk_sign(V x) {
    const V zero = tk_splat<V>(0), one = tk_splat<V>(1);
    return tk_select(x > zero, one, tk_select(x < zero, (V)(zero - one), x));
}

/* log(1 + exp(x)), without overflow. */
template <class V> TK_INLINE V tk_softplus(V x) {
    return tk_max<V>(x, tk_splat<V>(0)) + tk_log1p(tk_exp(-tk_abs(x)));
}

/* Tests: bool for a scalar, 0 or -1 in each lane for a vector. */
template <class V> TK_INLINE auto tk_isnan(V x) { return x != x; }
template <class V> TK_INLINE auto tk_isfinite(V x) { return x - x == x - x; }
template <class V> TK_INLINE auto tk_isinf(V x) {
    if constexpr (tk_lanes<V> == 1) return x == x && x - x != x - x;
    else return (x == x) & (x - x != x - x);
}

/* ---------------------------------------------------------------- floats of 16 and 8 bits, stored as integers */

/* Widening is exact. Narrowing rounds to nearest, ties to even; what is too big becomes infinity, or NaN in f8e4m3,
 * which has no infinity (the rules of ml_dtypes). As runtime/include/tk_narrow.h. */
template <int total_bits, int mantissa_bits, int exponent_bias, uint32_t infinity_code, bool infinite>
struct tk_format {
    static constexpr int bits = total_bits, mantissa = mantissa_bits, bias = exponent_bias;
    static constexpr uint32_t infinity = infinity_code;
    static constexpr bool has_infinity = infinite;
};
typedef tk_format<16, 10, 15, 0x7c00, true> tk_format_f16;
typedef tk_format<8, 3, 7, 0x7f, false> tk_format_f8e4m3;
typedef tk_format<8, 2, 15, 0x7c, true> tk_format_f8e5m2;

template <class F> TK_INLINE float tk_widen(uint32_t code) {
    const uint32_t sign = (code >> (F::bits - 1)) << 31;
    const uint32_t magnitude = code & ((1u << (F::bits - 1)) - 1);
    /* As a float the shifted bits are too small by a power of two, subnormal ones too. */
    const float scaled = tk_f32_of_bits(magnitude << (23 - F::mantissa)) * 0x1p127f;
    const float value = scaled * (1.0f / (float)(1ull << F::bias));
    const uint32_t special = F::has_infinity ? (magnitude << (23 - F::mantissa)) | 0x7f800000u : 0x7fc00000u;
    return tk_f32_of_bits((magnitude < F::infinity ? tk_bitcast<uint32_t>(value) : special) | sign);
}

template <class F> TK_INLINE uint32_t tk_narrow(float x) {
    constexpr int shift = 23 - F::mantissa;
    const uint32_t bits = tk_bitcast<uint32_t>(x), sign = (bits >> 31) << (F::bits - 1), size = bits & 0x7fffffffu;
    /* Normal numbers: change the bias and round by adding half of the last place, less one where that is even. */
    const uint32_t odd = (size >> shift) & 1u;
    const uint32_t normal = (size - ((uint32_t)(127 - F::bias) << 23) + odd + ((1u << (shift - 1)) - 1)) >> shift;
    /* Subnormal ones: the floating-point unit rounds when it adds a number with the last place where it is wanted. */
    const uint32_t anchor = (uint32_t)(127 + 1 - F::bias + shift) << 23;
    const uint32_t subnormal = tk_bitcast<uint32_t>(tk_f32_of_bits(size) + tk_f32_of_bits(anchor)) - anchor;
    const uint32_t code = size >= ((uint32_t)(127 + 1 - F::bias) << 23) ? normal : subnormal;
    const uint32_t not_a_number = F::has_infinity ? F::infinity | 1u << (F::mantissa - 1) : F::infinity;
    const uint32_t bounded = code > F::infinity || size >= 0x7f800000u ? F::infinity : code;
    return (size > 0x7f800000u ? not_a_number : bounded) | sign;
}

TK_INLINE float tk_widen_f16(uint32_t code) {
#if defined(__CUDA_ARCH__)
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"((uint16_t)code));
    return r;
#elif defined(__AMDGCN__)
    return (float)tk_bitcast<_Float16>((uint16_t)code);
#else
    return tk_widen<tk_format_f16>(code);
#endif
}
TK_INLINE uint32_t tk_narrow_f16(float x) {
#if defined(__CUDA_ARCH__)
    uint16_t r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    return r;
#elif defined(__AMDGCN__)
    return tk_bitcast<uint16_t>((_Float16)x);
#else
    return tk_narrow<tk_format_f16>(x);
#endif
}
TK_INLINE float tk_widen_bf16(uint32_t code) { return tk_f32_of_bits(code << 16); }
TK_INLINE uint32_t tk_narrow_bf16(float x) {
    const uint32_t bits = tk_bitcast<uint32_t>(x);
    return (x == x ? bits + ((bits >> 16) & 1u) + 0x7fffu : bits | 0x400000u) >> 16;
}
TK_INLINE float tk_widen_f8e4m3(uint32_t code) { return tk_widen<tk_format_f8e4m3>(code); }
TK_INLINE uint32_t tk_narrow_f8e4m3(float x) { return tk_narrow<tk_format_f8e4m3>(x); }
TK_INLINE float tk_widen_f8e5m2(uint32_t code) { return tk_widen<tk_format_f8e5m2>(code); }
TK_INLINE uint32_t tk_narrow_f8e5m2(float x) { return tk_narrow<tk_format_f8e5m2>(x); }

/* To the nearest, ties away from zero; to even from sm_90 on, where that is one instruction and the other four. */
TK_INLINE float tk_widen_tf32(uint32_t code) { return tk_f32_of_bits(code); }
TK_INLINE uint32_t tk_narrow_tf32(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    uint32_t bits;
#if __CUDA_ARCH__ >= 900
    asm("cvt.rn.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#else
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#endif
    return bits;
#else
    const uint32_t bits = tk_bitcast<uint32_t>(x);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & ~0x1fffu;
#endif
}

#define TK_DECLARE_NARROW(name, storage)                                                      \
    TK_INLINE float tk_##name##_to_f32(storage code) { return tk_widen_##name(code); }        \
    TK_INLINE storage tk_f32_to_##name(float x) { return (storage)tk_narrow_##name(x); }      \
    template <int n> TK_INLINE tk_vector<float, n> tk_##name##_to_f32(tk_vector<storage, n> codes) { \
        tk_vector<float, n> r;                                                                \
        TK_EACH(n) r.at[i] = tk_widen_##name(codes.at[i]);                                    \
        return r;                                                                             \
    }                                                                                         \
    template <int n> TK_INLINE tk_vector<storage, n> tk_f32_to_##name(tk_vector<float, n> x) { \
        tk_vector<storage, n> r;                                                              \
        TK_EACH(n) r.at[i] = (storage)tk_narrow_##name(x.at[i]);                              \
        return r;                                                                             \
    }
TK_DECLARE_NARROW(tf32, uint32_t)
TK_DECLARE_NARROW(f16, uint16_t)
TK_DECLARE_NARROW(bf16, uint16_t)
TK_DECLARE_NARROW(f8e4m3, uint8_t)
TK_DECLARE_NARROW(f8e5m2, uint8_t)

/* A number as the sum of two for matrix units that multiply tf32: its first bits, and what is left, of which they do not
 * look at the last two. An infinity has no such parts: the sum of products becomes NaN. */
TK_INLINE uint32_t tk_tf32_high(float x) { return tk_bitcast<uint32_t>(x) & ~0x1fffu; }
TK_INLINE uint32_t tk_tf32_low(float x) { return tk_bitcast<uint32_t>(x - tk_f32_of_bits(tk_tf32_high(x))); }

#endif /* TK_SIMT_MATH_H */
