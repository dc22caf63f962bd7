/* Elementary functions on vectors, for kernels: no table, no branch, no call, IEEE special values right.
 *
 * `V` is float, double or a vector of them with any number of lanes. For f32 exp, log, pow, tanh, erf are within
 * 4 ulp of the exact value for every input, subnormal ones among them; tests/runtime sweeps all 2^32 and prints what
 * is reached. f64 calls the C library lane by lane: right, not fast.
 *
 * Polynomials are minimax fits of the relative error (Lawson's iteration on Chebyshev points, coefficients rounded
 * to f32); the accuracy holds with and without fused multiply-add.
 */
#ifndef TK_MATH_H
#define TK_MATH_H

#include "tk_arithmetic.h"
#include "tk_narrow.h"

/* ---------------------------------------------------------------- for f64: the C library, lane by lane */

#define TK_LANE_BY_LANE(fn, x)                                                   \
    if constexpr (tk_lanes<V> == 1) {                                            \
        return fn(x);                                                            \
    } else {                                                                     \
        V r = x;                                                                 \
        for (int i = 0; i < tk_lanes<V>; i++) r[i] = fn(x[i]);                   \
        return r;                                                                \
    }

#define TK_LANE_BY_LANE_2(fn, x, y)                                              \
    if constexpr (tk_lanes<V> == 1) {                                            \
        return fn(x, y);                                                         \
    } else {                                                                     \
        V r = x;                                                                 \
        for (int i = 0; i < tk_lanes<V>; i++) r[i] = fn(x[i], y[i]);             \
        return r;                                                                \
    }

/* The remainder with the sign of x, as C's fmod; lane by lane for every type. */
template <class V> TK_INLINE V tk_fmod(V x, V y) {
    if constexpr (tk_is_f32<V>) {
        TK_LANE_BY_LANE_2(__builtin_fmodf, x, y)
    } else {
        TK_LANE_BY_LANE_2(__builtin_fmod, x, y)
    }
}

/* ---------------------------------------------------------------- powers of two and polynomials */

/* 2^k as a float for integers -126 <= k <= 127; other k give a float without meaning. */
template <class I> TK_INLINE tk_vec<float, tk_lanes<I>> tk_pow2(I k) {
    typedef tk_vec<uint32_t, tk_lanes<I>> U;
    return tk_bitcast<tk_vec<float, tk_lanes<I>>>((tk_bitcast<U>(k) + 127u) << 23);
}

/* An integer in float form, and the same as an integer, by adding and subtracting 1.5 * 2^23. */
template <class V> struct tk_nearest {
    V value;
    tk_ints<V> integer;
};

/* a * b rounded to the nearest integer, for |a * b| < 2^22. */
template <class V> TK_INLINE tk_nearest<V> tk_round_product(V a, V b) {
    const V magic = tk_splat<V>(0x1.8p23f);
    const V shifted = tk_mad(a, b, magic);
    return {shifted - magic, tk_bitcast<tk_ints<V>>(shifted) - tk_bitcast<tk_ints<V>>(magic)};
}

/* x * 2^n, rounded once when the result is subnormal, infinite when it is too big; -252 <= n <= 254. */
template <class V> TK_INLINE V tk_scale(V x, tk_nearest<V> n) {
#if defined(__AVX512F__)
    if constexpr (sizeof(V) == 64) {
        asm("vscalefps %1, %0, %0" : "+v"(x) : "v"(n.value));
        return x;
    }
#endif
#if defined(__AVX512VL__)
    if constexpr (sizeof(V) == 16 || sizeof(V) == 32) {
        asm("vscalefps %1, %0, %0" : "+v"(x) : "v"(n.value));
        return x;
    }
#endif
    const tk_ints<V> half = n.integer >> 1;
    return x * tk_pow2(half) * tk_pow2(n.integer - half);
}

/* c0 + x * (c1 + x * (c2 + ...)), by Horner. */
template <class V> TK_INLINE V tk_poly(V, float c) { return tk_splat<V>(c); }
template <class V, class... C> TK_INLINE V tk_poly(V x, float c, C... rest) {
    return tk_mad(tk_poly(x, rest...), x, tk_splat<V>(c));
}

/* low <= x <= high, NaN left as it is. */
template <class V> TK_INLINE V tk_clamp_keep_nan(V x, float low, float high) {
    return tk_larger(tk_splat<V>(low), tk_smaller(tk_splat<V>(high), x));
}

/* exp(x) - 1 over |x| <= ln(2) / 2 * 1.0005, relative error 2^-26. */
template <class V> TK_INLINE V tk_expm1_core(V r) {
    const V q = tk_poly(r, 0x1.fffffep-2f, 0x1.5554b0p-3f, 0x1.555674p-5f, 0x1.1227b0p-7f, 0x1.6bebfep-10f);
    return tk_mad(q, r * r, r);
}

/* x = n * ln(2) + r; ln(2) in two parts, the first of 9 bits, so that n times it is exact. */
template <class V> TK_INLINE V tk_reduce_ln2(V x, V n) {
    return tk_mad(n, tk_splat<V>(0x1.bd0106p-13f), tk_mad(n, tk_splat<V>(-0x1.63p-1f), x));
}

/* ---------------------------------------------------------------- exp, sigmoid, tanh */

template <class V> TK_INLINE V tk_exp(V x) {
    if constexpr (tk_is_f64<V>) {
        TK_LANE_BY_LANE(__builtin_exp, x)
    } else {
        const V c = tk_clamp_keep_nan(x, -104.0f, 89.0f); /* beyond: 0 and infinity already at the ends */
        const tk_nearest<V> n = tk_round_product(c, tk_splat<V>(0x1.715476p0f));
        const V e = tk_expm1_core(tk_reduce_ln2(c, n.value)) + tk_splat<V>(1);
        return tk_scale(e, n);
    }
}

/* exp(x) where x <= 0, as of distances from the largest of a row: no upper limit to keep, and the smallest results may
 * lose more: relative error 2^-23 + |x| * 2^-25, and what would be subnormal is 0. */
template <class V> TK_INLINE V tk_exp_nonpositive(V x) {
    if constexpr (tk_is_f64<V>) {
        return tk_exp(x);
    } else {
        /* x * log2(e) = n + r, with the exponent of 2^n in the lowest bits of the shifted sum: 0 where n = -127. */
        const V c = tk_larger(tk_splat<V>(-88.1f), x), log2e = tk_splat<V>(0x1.715476p0f);
        const V magic = tk_splat<V>(0x1.8p23f + 127), shifted = tk_mad(c, log2e, magic);
        const V r = tk_mad(c, log2e, magic - shifted);
        const V core = tk_poly(r, 1.0f, 0x1.62e42ap-1f, 0x1.ebf9bap-3f, 0x1.c6b756p-5f, 0x1.3ceae2p-7f, 0x1.5bb9b6p-10f);
        return core * tk_bitcast<V>(tk_bitcast<tk_bits<V>>(shifted) << 23);
    }
}

/* exp(x) * 2^bias = (1 + core) * power, where that is a normal number: no limits to keep, one multiplication. */
template <class V> struct tk_power { V core, power; };
template <int bias, class V> TK_INLINE tk_power<V> tk_exp_parts(V x) {
    /* As tk_round_product, with the exponent of the power in the lowest bits. */
    const V magic = tk_splat<V>(0x1.8p23f + (127 + bias)), shifted = tk_mad(x, tk_splat<V>(0x1.715476p0f), magic);
    const V power = tk_bitcast<V>(tk_bitcast<tk_bits<V>>(shifted) << 23);
    return {tk_expm1_core(tk_reduce_ln2(x, shifted - magic)), power};
}

/* 1 / (1 + exp(-x)) as e / (1 + e) or 1 / (1 + e) with e = exp(-|x|) <= 1: the small exponential goes to the side where
 * it does not cancel. All is scaled by 2^24, so that e, down to 2^-150, is normal until the division rounds it. */
template <class V> TK_INLINE V tk_sigmoid(V x) {
    if constexpr (tk_is_f64<V>) {
        const V e = tk_exp(-tk_abs(x)), one = tk_splat<V>(1);
        return (x < tk_splat<V>(0) ? e : one) / (one + e);
    } else {
        const tk_power<V> p = tk_exp_parts<24>(tk_larger(tk_splat<V>(-104.0f), -tk_abs(x)));
        const V e = tk_mad(p.core, p.power, p.power), one = tk_splat<V>(0x1p24f);
        return (x < tk_splat<V>(0) ? e : one) / (one + e);
    }
}

template <class V> TK_INLINE V tk_tanh(V x) {
    if constexpr (tk_is_f64<V>) {
        TK_LANE_BY_LANE(__builtin_tanh, x)
    } else {
        /* tanh |x| = m / (m + 2) with m = exp(2 |x|) - 1, which is exact to the last bits also where it is small. */
        const tk_power<V> p = tk_exp_parts<0>(tk_smaller(tk_splat<V>(20.0f), tk_abs(x) * tk_splat<V>(2)));
        const V m = tk_mad(p.power, p.core, p.power - tk_splat<V>(1));
        return tk_copysign(m / (m + tk_splat<V>(2)), x);
    }
}

/* ---------------------------------------------------------------- log, pow */

/* x = m * 2^e with sqrt(1/2) <= m < sqrt(2), for positive finite x, subnormal ones among them. */
template <class V> struct tk_split { V mantissa, exponent; };
template <class V> TK_INLINE tk_split<V> tk_split_exponent(V x) {
    typedef tk_ints<V> I;
    const auto subnormal = x < tk_splat<V>(0x1p-126f);
    const V normal = subnormal ? x * tk_splat<V>(0x1p23f) : x;
    const I root_half = tk_splat<I>(0x3f3504f3);
    const I bits = tk_bitcast<I>(normal) - root_half;
    const V e = tk_convert<float>(bits >> 23) - (subnormal ? tk_splat<V>(23.0f) : tk_splat<V>(0.0f));
    return {tk_bitcast<V>((bits & tk_splat<I>(0x7fffff)) + root_half), e};
}

template <class V> TK_INLINE V tk_log(V x) {
    if constexpr (tk_is_f64<V>) {
        TK_LANE_BY_LANE(__builtin_log, x)
    } else {
        const V zero = tk_splat<V>(0.0f), infinity = tk_splat<V>(__builtin_inff());
        const tk_split<V> s = tk_split_exponent(x);
        /* log(1 + f) = f - f^2 / 2 + f^3 P(f) */
        const V f = s.mantissa - tk_splat<V>(1), square = f * f;
        V y = tk_poly(f, 0x1.555554p-2f, -0x1.000226p-2f, 0x1.99a008p-3f, -0x1.547244p-3f, 0x1.22da1ep-3f,
                      -0x1.0d8542p-3f, 0x1.055b68p-3f, -0x1.38b576p-4f);
        y = tk_mad(s.exponent, tk_splat<V>(-0x1.bd0106p-13f), y * square * f);
        y = tk_mad(square, tk_splat<V>(-0.5f), y) + f;
        y = tk_mad(s.exponent, tk_splat<V>(0x1.63p-1f), y);
        y = x < infinity ? y : x; /* infinity and NaN */
        return x > zero ? y : x == zero ? -infinity : tk_splat<V>(__builtin_nanf(""));
    }
}

/* log2 of positive finite x as an unevaluated sum of two floats, together good to about 2^-30. */
template <class V> struct tk_pair {
    V high, low;
};
template <class V> TK_INLINE tk_pair<V> tk_log2_pair(V x) {
    const V one = tk_splat<V>(1), lead = tk_splat<V>(0x1.715476p1f), lead_low = tk_splat<V>(0x1.4ae0c0p-25f);
    const tk_split<V> split = tk_split_exponent(x);
    /* s = (m - 1) / (m + 1), as s + s_low; m + 1 may round, what it loses is `lost`. */
    const V m = split.mantissa, numerator = m - one, denominator = m + one;
    const V lost = m - (denominator - one), inverse = one / denominator;
    const V s = numerator * inverse;
    const V s_low = tk_mad(-s, lost, tk_remainder(numerator, s, denominator)) * inverse;
    /* log2(m) = s * (2 / ln 2 + P(s^2)) */
    const V z = s * s;
    const V p = z * tk_poly(z, 0x1.ec709ep-1f, 0x1.277768p-1f, 0x1.a59614p-2f, 0x1.5c679cp-2f);
    const V head = s * lead;
    V tail = tk_mad(s, lead_low, tk_product_error(s, lead, head));
    tail = tk_mad(s_low, tk_mad(p, tk_splat<V>(3), lead), tail); /* s_low times the derivative */
    tail = tk_mad(s, p, tail);
    const V sum = split.exponent + head;
    tail = (head - (sum - split.exponent)) + tail;
    const V high = sum + tail;
    return {high, tail - (high - sum)};
}

/* 2^(t + t_low) for |t_low| small against 1; t may have any size. */
template <class V> TK_INLINE V tk_exp2_pair(V t, V t_low) {
    const V c = tk_clamp_keep_nan(t, -152.0f, 130.0f);
    const tk_nearest<V> n = tk_round_product(c, tk_splat<V>(1));
    const V r = (c - n.value) + (c == t ? t_low : tk_splat<V>(0));
    const V q = tk_poly(r, 0x1.62e430p-1f, 0x1.ebfbdcp-3f, 0x1.c6aee8p-5f, 0x1.3b2d4ep-7f, 0x1.5f3e80p-10f,
                        0x1.41fba0p-13f);
    return tk_scale(tk_mad(q, r, tk_splat<V>(1)), n);
}

/* x^y with the special cases of C's pow. */
template <class V> TK_INLINE V tk_pow(V x, V y) {
    if constexpr (tk_is_f64<V>) {
        TK_LANE_BY_LANE_2(__builtin_pow, x, y)
    } else {
        const V zero = tk_splat<V>(0), one = tk_splat<V>(1), infinity = tk_splat<V>(__builtin_inff());
        const V size = tk_abs(x);
        const tk_pair<V> log2 = tk_log2_pair(size);
        const V power = tk_clamp_keep_nan(y, -0x1p120f, 0x1p120f); /* keeps products finite */
        const V t = power * log2.high;
        V r = tk_exp2_pair(t, tk_mad(power, log2.low, tk_product_error(power, log2.high, t)));
        /* 0 and infinity, where the logarithm above means nothing */
        const V at_zero = y < zero ? infinity : zero, at_infinity = y < zero ? zero : infinity;
        r = size == zero ? at_zero : r;
        r = size == infinity ? at_infinity : r;
        /* negative x: defined for integers only, negative for odd ones */
        const V half = y * tk_splat<V>(0.5f);
        const V odd_sign = tk_trunc(half) == half ? zero : x;
        const V negative = ((size == infinity) | (size == zero)) ? r : tk_splat<V>(__builtin_nanf(""));
        const V signed_r = tk_copysign(r, odd_sign);
        r = tk_trunc(y) == y ? signed_r : (x < zero ? negative : r);
        r = ((x == x) & (y == y)) ? r : x + y;
        return ((y == zero) | (x == one)) ? one : r;
    }
}

/* ---------------------------------------------------------------- erf */

template <class V> TK_INLINE V tk_erf(V x) {
    if constexpr (tk_is_f64<V>) {
        TK_LANE_BY_LANE(__builtin_erf, x)
    } else {
        /* A rational function: half the steps of 1 - exp(...), and one division, which runs beside them. From 3.93 on it
         * is 1 in f32; below, the roundings of both polynomials add up to less than 6 ulp. */
        const V t = tk_smaller(tk_splat<V>(3.93f), tk_abs(x)), square = t * t;
        const V above = tk_poly(square, 0x1.20dd76p+0f, 0x1.86b29ep-3f, 0x1.b0710ap-5f, 0x1.ef5134p-9f,
                                0x1.2a9e7cp-12f, 0x1.121158p-19f);
        const V below = tk_poly(square, 1.0f, 0x1.013a62p-1f, 0x1.d3f9a6p-4f, 0x1.eb64e6p-7f, 0x1.3168a2p-10f,
                                0x1.3eca3ap-15f);
        const V r = tk_smaller(tk_splat<V>(1), t * above / below);
        return tk_copysign(r, x);
    }
}

/* ---------------------------------------------------------------- sin, cos */

/* x = quarter * pi / 2 + rest with |rest| <= pi / 4, reduced in f64: right to the last bits for |x| < 2^20. */
template <class V> struct tk_angle {
    V rest;
    tk_ints<V> quarter;
};
template <class V> TK_INLINE tk_angle<V> tk_reduce_angle(V x) {
    typedef tk_vec<double, tk_lanes<V>> D;
    const D wide = tk_convert<double>(x), magic = tk_splat<D>(0x1.8p52);
    const D n = tk_mad(wide, tk_splat<D>(0x1.45f306dc9c883p-1), magic) - magic;
    /* pi / 2 in two parts, the first of 33 bits, so that n times it is exact */
    const D rest = tk_mad(n, tk_splat<D>(-0x1.0b4611a626331p-34), tk_mad(n, tk_splat<D>(-0x1.921fb544p0), wide));
    return {tk_convert<float>(rest), tk_convert<int32_t>(n)};
}

/* The same for one float of 2^20 <= |x| < infinity: x * 2 / pi from the 96 bits of 2 / pi that matter at its size.
 * Bits of weight 4 and more count whole turns and are left out (Payne and Hanek, 1983). */
TK_INLINE tk_angle<float> tk_reduce_huge_angle(float x) {
    const uint32_t two_over_pi[8] = {0,           0xa2f9836eu, 0x4e441529u, 0xfc2757d1u,
                                     0xf534ddc0u, 0xdb629599u, 0x3c439041u, 0xfe5163abu};
    const uint32_t bits = tk_bitcast<uint32_t>(x);
    const uint32_t start = (bits >> 23 & 0xff) - 127 + 7, word = start >> 5, shift = start & 31;
    const uint64_t mantissa = (bits & 0x7fffff) | 0x800000;
    uint64_t sum = 0, window[3];
    for (uint32_t i = 0; i < 3; i++)
        window[i] = ((uint64_t)two_over_pi[word + i] << 32 | two_over_pi[word + i + 1]) << shift >> 32;
    sum = window[2] * mantissa >> 32;
    sum += window[1] * mantissa;
    sum += window[0] * mantissa << 32;
    /* Now sum / 2^62 is the angle in quarters, modulo 4; split off the nearest whole one. */
    const int64_t fraction = (int64_t)(sum << 2);
    const int32_t quarter = (int32_t)(sum >> 62) + (fraction < 0);
    const float rest = (float)((double)fraction * 0x1.921fb54442d18p-64);
    return (int32_t)bits < 0 ? tk_angle<float>{-rest, -quarter} : tk_angle<float>{rest, quarter};
}

/* sin(x + turn * pi / 2). */
template <class V> TK_INLINE V tk_sin_turned(V x, int turn) {
    typedef tk_ints<V> I;
    const V limit = tk_splat<V>(0x1p20f), size = tk_abs(x), one = tk_splat<V>(1);
    const auto fits = size < limit;
    tk_angle<V> angle = tk_reduce_angle(fits ? x : tk_splat<V>(0));
    angle.rest = fits ? angle.rest : x - x; /* NaN for infinity and NaN */
    const auto huge = (size >= limit) & (size < tk_splat<V>(__builtin_inff()));
    if (__builtin_expect(tk_any(huge), 0)) {
        if constexpr (tk_lanes<V> == 1) {
            angle = tk_reduce_huge_angle(x);
        } else {
            for (int i = 0; i < tk_lanes<V>; i++) {
                if (!huge[i]) continue;
                const tk_angle<float> one_angle = tk_reduce_huge_angle(x[i]);
                angle.rest[i] = one_angle.rest, angle.quarter[i] = one_angle.quarter;
            }
        }
    }
    const V r = angle.rest, square = r * r;
    const I quarter = angle.quarter + turn, bit = tk_splat<I>(1);
    const V sine = tk_mad(square * r, tk_poly(square, -0x1.555546p-3f, 0x1.110730p-7f, -0x1.994062p-13f), r);
    const V tail = tk_poly(square, 0x1.55554ap-5f, -0x1.6c0c28p-10f, 0x1.99e86ap-16f);
    const V cosine = tk_mad(square * square, tail, tk_mad(square, tk_splat<V>(-0.5f), one));
    const V y = (quarter & bit) == bit ? cosine : sine;
    return (quarter >> 1 & bit) == bit ? -y : y;
}

template <class V> TK_INLINE V tk_sin(V x) {
    if constexpr (tk_is_f64<V>) {
        TK_LANE_BY_LANE(__builtin_sin, x)
    } else {
        const V y = tk_sin_turned(x, 0);
        return x == tk_splat<V>(0) ? x : y; /* keeps the sign of zero */
    }
}

template <class V> TK_INLINE V tk_cos(V x) {
    if constexpr (tk_is_f64<V>) {
        TK_LANE_BY_LANE(__builtin_cos, x)
    } else {
        return tk_sin_turned(x, 1);
    }
}

#endif /* TK_MATH_H */
