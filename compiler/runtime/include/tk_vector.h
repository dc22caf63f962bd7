/* Vectors for generated kernels: types, memory, shuffles, reductions.
 *
 * Only GNU vector extensions (g++ >= 9, clang >= 11) and no system header but <stdint.h>: <immintrin.h> alone would
 * cost each kernel a third of a second of compile time. Where an instruction has no spelling in C++ it is
 * written as one line of inline assembly behind a feature macro, with a portable form beside it.
 *
 * Everything is a template over `V`, a vector type or a scalar, which counts as a vector of one lane.
 *
 * device/tk_simt.h has the same words for GPUs: their compilers know neither these vectors nor a host's headers.
 */
#ifndef TK_VECTOR_H
#define TK_VECTOR_H

#include <stdint.h>

#define TK_INLINE static inline __attribute__((always_inline))

/* Let a * b + c become one fused instruction; g++ does so by -ffp-contract=fast, its default. */
#if defined(__clang__)
#define TK_CONTRACT _Pragma("clang fp contract(fast)")
#else
#define TK_CONTRACT
#endif

/* For inline assembly: memory at `p` of which some bytes, not known which, are read or written. */
#if defined(__clang__)
#define TK_SOME_BYTES(kind, p) (*(kind char(*)[64])(p))
#else
#define TK_SOME_BYTES(kind, p) (*(kind char(*)[])(p))
#endif

/* The widest vector register, in bytes. */
#if defined(__AVX512F__)
#define TK_VECTOR_BYTES 64
#elif defined(__AVX__)
#define TK_VECTOR_BYTES 32
#else
#define TK_VECTOR_BYTES 16
#endif

/* Clang's functions on whole vectors, for devices: what runs there knows no inline assembly of x86. */
#if defined(TK_NO_ASSEMBLY) && defined(__clang__)
#define TK_ELEMENTWISE(name) __has_builtin(__builtin_elementwise_##name)
#else
#define TK_ELEMENTWISE(name) 0
#endif

/* Whether a * b + c rounded once is one instruction. */
#if defined(__FMA__) || defined(__AVX512F__) || defined(__ARM_FEATURE_FMA) || TK_ELEMENTWISE(fma)
#define TK_HAVE_FMA 1
#endif

/* ---------------------------------------------------------------- types: tk_f32x16, tk_i8x64, ... */

#define TK_DECLARE_VECTOR(T, name, lanes) \
    typedef T tk_##name##x##lanes __attribute__((vector_size(sizeof(T) * lanes)));
#define TK_DECLARE_VECTORS(T, name)  \
    typedef T tk_##name##x1;         \
    TK_DECLARE_VECTOR(T, name, 2)    \
    TK_DECLARE_VECTOR(T, name, 4)    \
    TK_DECLARE_VECTOR(T, name, 8)    \
    TK_DECLARE_VECTOR(T, name, 16)   \
    TK_DECLARE_VECTOR(T, name, 32)   \
    TK_DECLARE_VECTOR(T, name, 64)

TK_DECLARE_VECTORS(float, f32)
TK_DECLARE_VECTORS(double, f64)
TK_DECLARE_VECTORS(int8_t, i8)
TK_DECLARE_VECTORS(int16_t, i16)
TK_DECLARE_VECTORS(int32_t, i32)
TK_DECLARE_VECTORS(int64_t, i64)
TK_DECLARE_VECTORS(uint8_t, u8)
TK_DECLARE_VECTORS(uint16_t, u16)
TK_DECLARE_VECTORS(uint32_t, u32)
TK_DECLARE_VECTORS(uint64_t, u64)

template <class T> struct tk_no_reference { typedef T type; };
template <class T> struct tk_no_reference<T &> { typedef T type; };

/* tk_type<V>::scalar is the element type, tk_type<V>::lanes their number. */
template <class V> struct tk_type {
    typedef typename tk_no_reference<decltype((*(V *)nullptr)[0])>::type scalar;
    static constexpr int lanes = sizeof(V) / sizeof(scalar);
};
#define TK_DECLARE_SCALAR(T)                  \
    template <> struct tk_type<T> {           \
        typedef T scalar;                     \
        static constexpr int lanes = 1;       \
    };
TK_DECLARE_SCALAR(bool)
TK_DECLARE_SCALAR(float)
TK_DECLARE_SCALAR(double)
TK_DECLARE_SCALAR(int8_t)
TK_DECLARE_SCALAR(int16_t)
TK_DECLARE_SCALAR(int32_t)
TK_DECLARE_SCALAR(int64_t)
TK_DECLARE_SCALAR(uint8_t)
TK_DECLARE_SCALAR(uint16_t)
TK_DECLARE_SCALAR(uint32_t)
TK_DECLARE_SCALAR(uint64_t)

template <class V> constexpr int tk_lanes = tk_type<V>::lanes;
template <class V> using tk_scalar = typename tk_type<V>::scalar;

/* tk_vec<T, n>: the vector of n lanes of T; T itself for one lane. */
template <class T, int n> struct tk_make_vec { typedef T type __attribute__((vector_size(sizeof(T) * n))); };
template <class T> struct tk_make_vec<T, 1> { typedef T type; };
template <class T, int n> using tk_vec = typename tk_make_vec<T, n>::type;

/* tk_bits<V>: unsigned integers of the same size and number of lanes; tk_ints<V>: signed. */
template <int bytes> struct tk_int_of;
template <> struct tk_int_of<1> { typedef int8_t i; typedef uint8_t u; };
template <> struct tk_int_of<2> { typedef int16_t i; typedef uint16_t u; };
template <> struct tk_int_of<4> { typedef int32_t i; typedef uint32_t u; };
template <> struct tk_int_of<8> { typedef int64_t i; typedef uint64_t u; };
template <class V> using tk_ints = tk_vec<typename tk_int_of<sizeof(tk_scalar<V>)>::i, tk_lanes<V>>;
template <class V> using tk_bits = tk_vec<typename tk_int_of<sizeof(tk_scalar<V>)>::u, tk_lanes<V>>;

template <class A, class B> struct tk_same { static constexpr bool value = false; };
template <class A> struct tk_same<A, A> { static constexpr bool value = true; };
template <class V> constexpr bool tk_is_f32 = tk_same<tk_scalar<V>, float>::value;
template <class V> constexpr bool tk_is_f64 = tk_same<tk_scalar<V>, double>::value;
template <class V> constexpr bool tk_is_float = tk_is_f32<V> || tk_is_f64<V>;

/* ---------------------------------------------------------------- values */

/* All lanes equal to s. (s - 0 rather than s + 0: it keeps the sign of zero.) */
template <class V> TK_INLINE V tk_splat(tk_scalar<V> s) {
    if constexpr (tk_lanes<V> == 1) return s;
    else return s - V{};
}

/* Reinterpret the bits. */
template <class To, class V> TK_INLINE To tk_bitcast(V v) {
    static_assert(sizeof(To) == sizeof(V), "sizes differ");
    To result;
    __builtin_memcpy(&result, &v, sizeof result);
    return result;
}

/* Convert every lane as C++ does: floats to integers towards zero. `To` names the element or the vector type. */
template <class To, class V> TK_INLINE tk_vec<tk_scalar<To>, tk_lanes<V>> tk_convert(V v) {
    typedef tk_vec<tk_scalar<To>, tk_lanes<V>> R;
    if constexpr (tk_lanes<V> == 1) return (R)v;
    else return __builtin_convertvector(v, R);
}

/* Lane-wise mask ? a : b; `mask` is what a comparison of operands of any size gives (bool for one lane). */
template <class M, class V> TK_INLINE V tk_select(M mask, V a, V b) {
    if constexpr (tk_lanes<V> == 1 || sizeof(tk_scalar<M>) == sizeof(tk_scalar<V>)) return mask ? a : b;
    else return __builtin_convertvector(mask, tk_ints<V>) ? a : b;
}

/* base, base + step, base + 2 * step, ... */
template <class V> TK_INLINE V tk_ramp(tk_scalar<V> base, tk_scalar<V> step) {
    if constexpr (tk_lanes<V> == 1) {
        return base;
    } else {
        V v = V{};
        for (int i = 0; i < tk_lanes<V>; i++) v[i] = (tk_scalar<V>)i;
        return v * step + base;
    }
}

/* ---------------------------------------------------------------- memory: any alignment, any declared type */

template <class V> TK_INLINE V tk_load(const void *from) {
    V v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
}

template <class V> TK_INLINE void tk_store(void *to, V v) { __builtin_memcpy(to, &v, sizeof v); }

/* Lanes i < count hold from[i], the others `other`; memory of the others is not touched. Any count is allowed. */
template <class V> TK_INLINE V tk_load_partial(const void *from, int64_t count, V other) {
#if defined(__AVX512F__)
    if constexpr (sizeof(tk_scalar<V>) == 4 && sizeof(V) == 64) {
        const uint16_t mask = (uint16_t)(count >= 16 ? 0xffff : count <= 0 ? 0 : (1u << count) - 1);
        tk_f32x16 v = tk_bitcast<tk_f32x16>(other);
        asm("vmovups (%1), %0%{%2%}" : "+v"(v) : "r"(from), "Yk"(mask), "m"(TK_SOME_BYTES(const, from)));
        return tk_bitcast<V>(v);
    }
#endif
#if defined(__AVX512VL__)
    if constexpr (sizeof(tk_scalar<V>) == 4 && (sizeof(V) == 32 || sizeof(V) == 16)) {
        constexpr int lanes = tk_lanes<V>;
        const uint16_t mask = (uint16_t)(count >= lanes ? (1u << lanes) - 1 : count <= 0 ? 0 : (1u << count) - 1);
        tk_vec<float, lanes> v = tk_bitcast<tk_vec<float, lanes>>(other);
        asm("vmovups (%1), %0%{%2%}" : "+v"(v) : "r"(from), "Yk"(mask), "m"(TK_SOME_BYTES(const, from)));
        return tk_bitcast<V>(v);
    }
#elif defined(__AVX__)
    if constexpr (sizeof(tk_scalar<V>) == 4 && (sizeof(V) == 32 || sizeof(V) == 16)) {
        typedef tk_vec<int32_t, tk_lanes<V>> I;
        const int32_t bound = (int32_t)(count >= tk_lanes<V> ? tk_lanes<V> : count <= 0 ? 0 : count);
        const I mask = tk_ramp<I>(0, 1) < tk_splat<I>(bound);
        I v;
        asm("vmaskmovps (%1), %2, %0" : "=x"(v) : "r"(from), "x"(mask), "m"(TK_SOME_BYTES(const, from)));
        return tk_select(mask, tk_bitcast<V>(v), other);
    }
#endif
    V v = other;
    if constexpr (tk_lanes<V> == 1) {
        if (count > 0) v = tk_load<V>(from);
    } else {
        for (int i = 0; i < tk_lanes<V>; i++)
            if (i < count) v[i] = tk_load<tk_scalar<V>>((const tk_scalar<V> *)from + i);
    }
    return v;
}

template <class V> TK_INLINE V tk_load_partial(const void *from, int64_t count) {
    return tk_load_partial<V>(from, count, tk_splat<V>(0));
}

/* Write the lanes i < count; memory of the others is not touched. */
template <class V> TK_INLINE void tk_store_partial(void *to, V v, int64_t count) {
#if defined(__AVX512F__)
    if constexpr (sizeof(tk_scalar<V>) == 4 && sizeof(V) == 64) {
        const uint16_t mask = (uint16_t)(count >= 16 ? 0xffff : count <= 0 ? 0 : (1u << count) - 1);
        asm("vmovups %2, (%1)%{%3%}" : "+m"(TK_SOME_BYTES(, to)) : "r"(to), "v"(v), "Yk"(mask));
        return;
    }
#endif
#if defined(__AVX512VL__)
    if constexpr (sizeof(tk_scalar<V>) == 4 && (sizeof(V) == 32 || sizeof(V) == 16)) {
        constexpr int lanes = tk_lanes<V>;
        const uint16_t mask = (uint16_t)(count >= lanes ? (1u << lanes) - 1 : count <= 0 ? 0 : (1u << count) - 1);
        asm("vmovups %2, (%1)%{%3%}" : "+m"(TK_SOME_BYTES(, to)) : "r"(to), "v"(v), "Yk"(mask));
        return;
    }
#elif defined(__AVX__)
    if constexpr (sizeof(tk_scalar<V>) == 4 && (sizeof(V) == 32 || sizeof(V) == 16)) {
        typedef tk_vec<int32_t, tk_lanes<V>> I;
        const int32_t bound = (int32_t)(count >= tk_lanes<V> ? tk_lanes<V> : count <= 0 ? 0 : count);
        const I mask = tk_ramp<I>(0, 1) < tk_splat<I>(bound);
        asm("vmaskmovps %2, %3, (%1)" : "+m"(TK_SOME_BYTES(, to)) : "r"(to), "x"(v), "x"(mask));
        return;
    }
#endif
    if constexpr (tk_lanes<V> == 1) {
        if (count > 0) tk_store(to, v);
    } else {
        for (int i = 0; i < tk_lanes<V>; i++)
            if (i < count) tk_store<tk_scalar<V>>((tk_scalar<V> *)to + i, v[i]);
    }
}

/* Lane i holds base[index[i]], with the index counted in elements; `I` is any integer vector. */
template <class V, class I> TK_INLINE V tk_gather(const void *base, I index) {
    const tk_scalar<V> *from = (const tk_scalar<V> *)base;
    if constexpr (tk_lanes<V> == 1) {
        return tk_load<V>(from + index);
    } else {
        V v = V{};
        for (int i = 0; i < tk_lanes<V>; i++) v[i] = tk_load<tk_scalar<V>>(from + index[i]);
        return v;
    }
}

/* base[index[i]] = lane i, in the order of the lanes. */
template <class V, class I> TK_INLINE void tk_scatter(void *base, I index, V v) {
    tk_scalar<V> *to = (tk_scalar<V> *)base;
    if constexpr (tk_lanes<V> == 1) {
        tk_store(to + index, v);
    } else {
        for (int i = 0; i < tk_lanes<V>; i++) tk_store<tk_scalar<V>>(to + index[i], v[i]);
    }
}

/* ---------------------------------------------------------------- shuffles */

#if defined(__clang__) || __GNUC__ >= 12
#define TK_HAVE_SHUFFLE 1
#endif

/* Lanes of `a` followed by those of `b`, picked by constant index: tk_shuffle<0, 2, 4, 6>(a, b). */
template <int... index, class V> TK_INLINE tk_vec<tk_scalar<V>, (int)sizeof...(index)> tk_shuffle(V a, V b) {
#if defined(TK_HAVE_SHUFFLE)
    return __builtin_shufflevector(a, b, index...);
#else
    constexpr int lanes = tk_lanes<V>;
    return tk_vec<tk_scalar<V>, (int)sizeof...(index)>{(index < lanes ? a[index % lanes] : b[index % lanes])...};
#endif
}

/* tk_range<n>: 0 .. n-1 as a parameter pack. */
template <int... index> struct tk_indices {};
template <int n, int... index> struct tk_make_range : tk_make_range<n - 1, n - 1, index...> {};
template <int... index> struct tk_make_range<0, index...> { typedef tk_indices<index...> type; };
template <int n> using tk_range = typename tk_make_range<n>::type;


template <int shift, class V, int... index>
TK_INLINE tk_vec<tk_scalar<V>, (int)sizeof...(index)> tk_slice(V a, V b, tk_indices<index...>) {
    return tk_shuffle<(index + shift)...>(a, b);
}

/* The first and the second half; the halves of two lanes are scalars. */
template <class V> TK_INLINE tk_vec<tk_scalar<V>, tk_lanes<V> / 2> tk_low(V v) {
    if constexpr (tk_lanes<V> == 2) return v[0];
    else return tk_slice<0>(v, v, tk_range<tk_lanes<V> / 2>());
}
template <class V> TK_INLINE tk_vec<tk_scalar<V>, tk_lanes<V> / 2> tk_high(V v) {
    if constexpr (tk_lanes<V> == 2) return v[1];
    else return tk_slice<tk_lanes<V> / 2>(v, v, tk_range<tk_lanes<V> / 2>());
}
template <class V> TK_INLINE tk_vec<tk_scalar<V>, 2 * tk_lanes<V>> tk_join(V low, V high) {
    if constexpr (tk_lanes<V> == 1) return tk_vec<V, 2>{low, high};
    else return tk_slice<0>(low, high, tk_range<2 * tk_lanes<V>>());
}

/* ---------------------------------------------------------------- smallest, largest; horizontal reductions */

/* Whether V fills a vector register exactly, so that one instruction does it. */
template <class V> constexpr bool tk_is_register = sizeof(V) >= 16 && sizeof(V) <= TK_VECTOR_BYTES && tk_lanes<V> > 1;

/* a > b ? a : b in one instruction, which compilers make of it with some operands only; so with NaN b is the result. */
template <class V> TK_INLINE V tk_larger(V a, V b) {
#if defined(__AVX__) && !defined(TK_NO_ASSEMBLY)
    if constexpr (tk_is_register<V> && tk_is_float<V>) {
        V r;
        if constexpr (tk_is_f32<V>) asm("vmaxps %2, %1, %0" : "=v"(r) : "v"(a), "v"(b));
        else asm("vmaxpd %2, %1, %0" : "=v"(r) : "v"(a), "v"(b));
        return r;
    }
#endif
    return a > b ? a : b;
}
template <class V> TK_INLINE V tk_smaller(V a, V b) {
#if defined(__AVX__) && !defined(TK_NO_ASSEMBLY)
    if constexpr (tk_is_register<V> && tk_is_float<V>) {
        V r;
        if constexpr (tk_is_f32<V>) asm("vminps %2, %1, %0" : "=v"(r) : "v"(a), "v"(b));
        else asm("vminpd %2, %1, %0" : "=v"(r) : "v"(a), "v"(b));
        return r;
    }
#endif
    return a < b ? a : b;
}

/* ONNX's rule, as numpy's: a NaN in either operand is the result. NaN is looked for in `b` alone, as tk_larger keeps
 * that in `a`: where `a` is what was found so far, a chain of these waits for two short instructions each. */
template <class V> TK_INLINE V tk_max(V a, V b) {
    const V larger = tk_larger(b, a);
    if constexpr (tk_is_float<V>) return b != b ? b : larger;
    else return larger;
}
template <class V> TK_INLINE V tk_min(V a, V b) {
    const V smaller = tk_smaller(b, a);
    if constexpr (tk_is_float<V>) return b != b ? b : smaller;
    else return smaller;
}

/* max(x, 0) in one instruction; NaN stays NaN. */
template <class V> TK_INLINE V tk_relu(V x) { return tk_larger(tk_splat<V>(0), x); }

#define TK_DECLARE_REDUCTION(name, combined)                                \
    template <class V> TK_INLINE tk_scalar<V> tk_reduce_pair_##name(V a) {  \
        const V b = tk_shuffle<1, 0, 3, 2>(a, a);                           \
        return (combined)[0];                                               \
    }                                                                       \
    template <class V> TK_INLINE tk_scalar<V> tk_reduce_##name(V v) {       \
        if constexpr (tk_lanes<V> == 1) {                                   \
            return v;                                                       \
        } else if constexpr (sizeof(V) == 16 && tk_lanes<V> == 4) { /* halves of this are no registers */ \
            const V a = v, b = tk_shuffle<2, 3, 0, 1>(v, v);                \
            return tk_reduce_pair_##name(combined);                         \
        } else {                                                            \
            const tk_vec<tk_scalar<V>, tk_lanes<V> / 2> a = tk_low(v), b = tk_high(v); \
            return tk_reduce_##name(combined);                              \
        }                                                                   \
    }
TK_DECLARE_REDUCTION(add, a + b)
TK_DECLARE_REDUCTION(mul, a * b)
TK_DECLARE_REDUCTION(max, tk_max(a, b))
TK_DECLARE_REDUCTION(min, tk_min(a, b))

/* Whether some lane of a mask is set. */
template <class M> TK_INLINE bool tk_any(M mask) {
    if constexpr (tk_lanes<M> == 1) return mask;
    else return tk_any((tk_low(mask) | tk_high(mask)) != 0);
}

#endif /* TK_VECTOR_H */
