/* Arithmetic that rounds once: square root, fused multiply-add, sign and rounding to an integer. One instruction
 * where the processor has it and C++ has no spelling for it (x86-64, aarch64), with a portable form beside it. */
#ifndef TK_ARITHMETIC_H
#define TK_ARITHMETIC_H

#include "tk_vector.h"

/* ---------------------------------------------------------------- instructions without a C++ spelling */

/* fn over both halves, or over V doubled when it is smaller than a register. */
#define TK_BY_HALVES(fn, v)                                              \
    if constexpr (sizeof(v) < 16) return tk_low(fn(tk_join(v, v)));      \
    else return tk_join(fn(tk_low(v)), fn(tk_high(v)))

template <class V> TK_INLINE V tk_sqrt(V x) {
    if constexpr (tk_lanes<V> == 1) {
        if constexpr (tk_is_f32<V>) return __builtin_sqrtf(x);
        else return __builtin_sqrt(x);
    } else {
#if TK_ELEMENTWISE(sqrt)
        return __builtin_elementwise_sqrt(x);
#elif defined(__x86_64__) && !defined(TK_NO_ASSEMBLY)
        if constexpr (tk_is_register<V>) {
            V r;
#if defined(__AVX__)
            if constexpr (tk_is_f32<V>) asm("vsqrtps %1, %0" : "=v"(r) : "v"(x));
            else asm("vsqrtpd %1, %0" : "=v"(r) : "v"(x));
#else
            if constexpr (tk_is_f32<V>) asm("sqrtps %1, %0" : "=x"(r) : "x"(x));
            else asm("sqrtpd %1, %0" : "=x"(r) : "x"(x));
#endif
            return r;
        } else {
            TK_BY_HALVES(tk_sqrt, x);
        }
#elif defined(__aarch64__) && !defined(TK_NO_ASSEMBLY)
        if constexpr (tk_is_register<V>) {
            V r;
            if constexpr (tk_is_f32<V>) asm("fsqrt %0.4s, %1.4s" : "=w"(r) : "w"(x));
            else asm("fsqrt %0.2d, %1.2d" : "=w"(r) : "w"(x));
            return r;
        } else {
            TK_BY_HALVES(tk_sqrt, x);
        }
#else
        V r = x;
        for (int i = 0; i < tk_lanes<V>; i++) r[i] = tk_sqrt<tk_scalar<V>>(x[i]);
        return r;
#endif
    }
}

/* 1 / sqrt(x), correctly rounded twice (not the approximate instruction). */
template <class V> TK_INLINE V tk_rsqrt(V x) { return tk_splat<V>(1) / tk_sqrt(x); }

/* a * b + c, fused where the processor can, in whatever way is fastest. */
template <class V> TK_INLINE V tk_mad(V a, V b, V c) {
    TK_CONTRACT
    return a * b + c;
}

/* a * b + c rounded once. Without the instruction f32 is rounded from f64: right but for ties of ties. */
template <class V> TK_INLINE V tk_fma(V a, V b, V c) {
    if constexpr (tk_lanes<V> == 1) {
        if constexpr (tk_is_f32<V>) return __builtin_fmaf(a, b, c);
        else return __builtin_fma(a, b, c);
    } else {
#if TK_ELEMENTWISE(fma)
        return __builtin_elementwise_fma(a, b, c);
#elif defined(TK_HAVE_FMA)
        if constexpr (tk_is_register<V>) {
#if defined(__aarch64__)
            if constexpr (tk_is_f32<V>) asm("fmla %0.4s, %1.4s, %2.4s" : "+w"(c) : "w"(a), "w"(b));
            else asm("fmla %0.2d, %1.2d, %2.2d" : "+w"(c) : "w"(a), "w"(b));
#else
            if constexpr (tk_is_f32<V>) asm("vfmadd231ps %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
            else asm("vfmadd231pd %2, %1, %0" : "+v"(c) : "v"(a), "v"(b));
#endif
            return c;
        } else if constexpr (sizeof(V) < 16) {
            return tk_low(tk_fma(tk_join(a, a), tk_join(b, b), tk_join(c, c)));
        } else {
            return tk_join(tk_fma(tk_low(a), tk_low(b), tk_low(c)), tk_fma(tk_high(a), tk_high(b), tk_high(c)));
        }
#else
        if constexpr (tk_is_f32<V>) {
            return tk_convert<V>(tk_convert<double>(a) * tk_convert<double>(b) + tk_convert<double>(c));
        } else {
            V r = c;
            for (int i = 0; i < tk_lanes<V>; i++) r[i] = __builtin_fma(a[i], b[i], c[i]);
            return r;
        }
#endif
    }
}

/* a * b - product, exactly, where product is a * b rounded. */
template <class V> TK_INLINE V tk_product_error(V a, V b, V product) {
#if defined(TK_HAVE_FMA)
    return tk_fma(a, b, -product);
#else
    return tk_convert<V>(tk_convert<double>(a) * tk_convert<double>(b) - tk_convert<double>(product));
#endif
}

/* c - a * b, rounded once at most, where a * b is close to c. */
template <class V> TK_INLINE V tk_remainder(V c, V a, V b) {
#if defined(TK_HAVE_FMA)
    return tk_fma(-a, b, c);
#else
    return tk_convert<V>(tk_convert<double>(c) - tk_convert<double>(a) * tk_convert<double>(b));
#endif
}

/* ---------------------------------------------------------------- sign and rounding */

template <class V> TK_INLINE V tk_abs(V x) {
    if constexpr (tk_is_float<V>) {
        typedef tk_bits<V> U;
        return tk_bitcast<V>(tk_bitcast<U>(x) & (tk_splat<U>((tk_scalar<U>)-1) >> 1));
    } else {
        return x < tk_splat<V>(0) ? -x : x;
    }
}

/* |magnitude| with the sign bit of `sign`. */
template <class V> TK_INLINE V tk_copysign(V magnitude, V sign) {
    typedef tk_bits<V> U;
    const U rest = tk_splat<U>((tk_scalar<U>)-1) >> 1;
    return tk_bitcast<V>((tk_bitcast<U>(magnitude) & rest) | (tk_bitcast<U>(sign) & ~rest));
}

/* Rounding to an integer; `mode` as in the x86 instruction: 0 nearest (ties to even), 1 down, 2 up, 3 to zero. */
template <int mode, class V> TK_INLINE V tk_round_portable(V x) {
    /* Above 2^(mantissa bits) everything is an integer; below, adding and subtracting it rounds to nearest. */
    const V big = tk_splat<V>(tk_is_f32<V> ? (tk_scalar<V>)0x1p23 : (tk_scalar<V>)0x1p52);
    const V one = tk_splat<V>(1), zero = tk_splat<V>(0);
    const V size = tk_abs(x);
    V r = tk_copysign((size + big) - big, x);
    if constexpr (mode == 1) r = r > x ? r - one : r;
    if constexpr (mode == 2) r = r < x ? r + one : r;
    if constexpr (mode == 3) r = tk_abs(r) > size ? r - tk_copysign(one, x) : r;
    (void)one, (void)zero;
    return size < big ? tk_copysign(r, x) : x;
}

template <int mode, class V> TK_INLINE V tk_round_by(V x) {
#if TK_ELEMENTWISE(roundeven)
    if constexpr (mode == 0) return __builtin_elementwise_roundeven(x);
    if constexpr (mode == 1) return __builtin_elementwise_floor(x);
    if constexpr (mode == 2) return __builtin_elementwise_ceil(x);
    if constexpr (mode == 3) return __builtin_elementwise_trunc(x);
#elif defined(__AVX__) && !defined(TK_NO_ASSEMBLY)
    if constexpr (tk_is_register<V>) {
        V r;
#if defined(__AVX512F__)
        if constexpr (sizeof(V) == 64) {
            if constexpr (tk_is_f32<V>) asm("vrndscaleps %2, %1, %0" : "=v"(r) : "v"(x), "i"(mode));
            else asm("vrndscalepd %2, %1, %0" : "=v"(r) : "v"(x), "i"(mode));
            return r;
        }
#endif
        if constexpr (tk_is_f32<V>) asm("vroundps %2, %1, %0" : "=x"(r) : "x"(x), "i"(mode));
        else asm("vroundpd %2, %1, %0" : "=x"(r) : "x"(x), "i"(mode));
        return r;
    }
#elif defined(__aarch64__) && !defined(TK_NO_ASSEMBLY)
    if constexpr (tk_is_register<V>) {
        V r;
#define TK_ROUND(name)                                                      \
    if constexpr (tk_is_f32<V>) asm(name " %0.4s, %1.4s" : "=w"(r) : "w"(x)); \
    else asm(name " %0.2d, %1.2d" : "=w"(r) : "w"(x))
        if constexpr (mode == 0) { TK_ROUND("frintn"); }
        if constexpr (mode == 1) { TK_ROUND("frintm"); }
        if constexpr (mode == 2) { TK_ROUND("frintp"); }
        if constexpr (mode == 3) { TK_ROUND("frintz"); }
#undef TK_ROUND
        return r;
    }
#endif
    return tk_round_portable<mode>(x);
}

template <class V> TK_INLINE V tk_round(V x) { return tk_round_by<0>(x); }
template <class V> TK_INLINE V tk_floor(V x) { return tk_round_by<1>(x); }
template <class V> TK_INLINE V tk_ceil(V x) { return tk_round_by<2>(x); }
template <class V> TK_INLINE V tk_trunc(V x) { return tk_round_by<3>(x); }

#endif
