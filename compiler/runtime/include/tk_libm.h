/* Functions that are too rare to have a vector form of their own: lane by lane by the C library, or from the
 * functions of tk_math.h. Each takes a scalar or a vector of float or double. */
#ifndef TK_LIBM_H
#define TK_LIBM_H

#include "tk_math.h"
#include "tk_vector.h"

#define TK_LIBM_1(name)                                                                    \
    TK_INLINE float tk_libm_call_##name(float x) { return __builtin_##name##f(x); }        \
    TK_INLINE double tk_libm_call_##name(double x) { return __builtin_##name(x); }         \
    template <class V> TK_INLINE V tk_libm_##name(V x) {                                   \
        if constexpr (tk_lanes<V> == 1) {                                                  \
            return tk_libm_call_##name(x);                                                 \
        } else {                                                                           \
            V y = V{};                                                                     \
            for (int i = 0; i < tk_lanes<V>; i++) y[i] = tk_libm_call_##name(x[i]);        \
            return y;                                                                      \
        }                                                                                  \
    }

#define TK_LIBM_2(name)                                                                    \
    TK_INLINE float tk_libm_call_##name(float a, float b) { return __builtin_##name##f(a, b); } \
    TK_INLINE double tk_libm_call_##name(double a, double b) { return __builtin_##name(a, b); } \
    template <class V> TK_INLINE V tk_libm_##name(V a, V b) {                              \
        if constexpr (tk_lanes<V> == 1) {                                                  \
            return tk_libm_call_##name(a, b);                                              \
        } else {                                                                           \
            V y = V{};                                                                     \
            for (int i = 0; i < tk_lanes<V>; i++) y[i] = tk_libm_call_##name(a[i], b[i]);  \
            return y;                                                                      \
        }                                                                                  \
    }

TK_LIBM_1(exp2)
TK_LIBM_1(expm1)
TK_LIBM_1(log2)
TK_LIBM_1(log10)
TK_LIBM_1(log1p)
TK_LIBM_1(tan)
TK_LIBM_1(asin)
TK_LIBM_1(acos)
TK_LIBM_1(atan)
TK_LIBM_1(sinh)
TK_LIBM_1(cosh)
TK_LIBM_1(asinh)
TK_LIBM_1(acosh)
TK_LIBM_1(atanh)
TK_LIBM_1(erfc)
TK_LIBM_2(atan2)
TK_LIBM_2(hypot)

/* Tests: bool for a scalar, 0 or -1 in each lane for a vector. */
template <class V> TK_INLINE auto tk_libm_isnan(V x) { return x != x; }
template <class V> TK_INLINE auto tk_libm_isfinite(V x) { return x - x == x - x; }
template <class V> TK_INLINE auto tk_libm_isinf(V x) {
    if constexpr (tk_lanes<V> == 1) return x == x && x - x != x - x;
    else return (x == x) & (x - x != x - x);
}

template <class V> TK_INLINE V tk_libm_reciprocal(V x) { return tk_splat<V>(1) / x; }

/* -1, 0 or 1; NaN for NaN. */
template <class V> TK_INLINE V tk_libm_sign(V x) {
    const V zero = tk_splat<V>(0), one = tk_splat<V>(1);
    return tk_select(x > zero, one, tk_select(x < zero, V(zero - one), x));
}

/* log(1 + exp(x)), without overflow and with full relative accuracy: log(u) * t / (u - 1) with u = 1 + t is
 * log(1 + t) for any small t, because the rounding of u cancels (Kahan). */
template <class V> TK_INLINE V tk_libm_softplus(V x) {
    const V zero = tk_splat<V>(0), one = tk_splat<V>(1);
    const V t = tk_exp(V(zero - tk_abs(x))), u = one + t, d = u - one;
    const V small = tk_select(d == zero, t, V(tk_log(u) * (t / tk_select(d == zero, one, d))));
    return tk_max(x, zero) + small;
}

#endif /* TK_LIBM_H */
