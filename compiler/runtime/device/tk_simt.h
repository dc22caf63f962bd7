/* What generated CUDA and HIP kernels are written in: integers of fixed width, vectors, math, narrow floats, atomics,
 * sub-groups, asynchronous copies. Its text stands in front of the kernels of a module; it includes nothing that a
 * run-time compiler would have to find. C++17.
 *
 * Compiled by NVRTC, nvcc, clang++ (-x cuda, -x hip), hipcc, hiprtc. A host C++ compiler takes the same text when a
 * header in front of it defines TK_EMULATOR and the words below; TK_HIP marks a module in HIP.
 *
 * Words of the device, all that this header and the kernels use:
 *   marks        __global__ __device__ __shared__ __forceinline__ __launch_bounds__(threads)
 *   places       threadIdx.{x,y,z} blockIdx.{x,y,z}
 *   barriers     __syncthreads()   CUDA: __syncwarp()   HIP: only through TK_SUBGROUP_BARRIER()
 *   sub-groups   CUDA: __shfl_sync __shfl_xor_sync __shfl_up_sync __shfl_down_sync (mask, value, lane)
 *                HIP: __shfl __shfl_xor __shfl_up __shfl_down (value, lane); values: int, unsigned, float,
 *                long long, unsigned long long, double. TK_SUBGROUP: number of lanes, if the default is not right
 *   atomics      atomicAdd (int, unsigned, unsigned long long, float, double), atomicCAS (unsigned, unsigned long long);
 *                a volatile read goes with them
 *   C library    memcpy, and of <math.h>, for float (with f) and double: fabs sqrt fma fmod copysign rint floor ceil
 *                trunc exp exp2 expm1 log log2 log10 log1p pow sin cos tan asin acos atan atan2 sinh cosh tanh asinh
 *                acosh atanh erf erfc hypot
 * Everything else (inline assembly, __builtin_amdgcn_*, cp.async, dp4a) is behind __CUDA_ARCH__ or __AMDGCN__, with a
 * form in plain C++ beside it, or one of the emulator's behind TK_EMULATOR.
 *
 * Numbers: IEEE 754, no fast math; f32 functions are those of the vendor's library, within a few ulp. max, min and relu
 * keep NaN, as runtime/include/tk_vector.h does.
 */
#ifndef TK_SIMT_H
#define TK_SIMT_H

#if defined(__CUDACC_RTC__)
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
#elif defined(__HIPCC_RTC__) /* some releases define some of these, as other types than others */
typedef signed char tk_int8;
typedef short tk_int16;
typedef int tk_int32;
typedef long long tk_int64;
typedef unsigned char tk_uint8;
typedef unsigned short tk_uint16;
typedef unsigned int tk_uint32;
typedef unsigned long long tk_uint64;
#define int8_t tk_int8
#define int16_t tk_int16
#define int32_t tk_int32
#define int64_t tk_int64
#define uint8_t tk_uint8
#define uint16_t tk_uint16
#define uint32_t tk_uint32
#define uint64_t tk_uint64
#define uintptr_t tk_uint64
#else
#include <stdint.h>
#if !defined(TK_EMULATOR) && (defined(__HIP__) || defined(TK_HIP))
#include <hip/hip_runtime.h>
#endif
#endif

#if defined(TK_HIP) || defined(__HIP__) || defined(__HIPCC_RTC__)
#define TK_IS_HIP 1
#endif

#define TK_INLINE static __device__ __forceinline__

#if defined(__GNUC__) && !defined(__clang__) && !defined(__CUDACC__)
#define TK_UNROLLED _Pragma("GCC unroll 16")
#define TK_ROLLED _Pragma("GCC unroll 1")
#else
#define TK_UNROLLED _Pragma("unroll")
#define TK_ROLLED _Pragma("unroll 1")
#endif
#define TK_EACH(n) TK_UNROLLED for (int i = 0; i < (n); i++)

/* Lanes of a sub-group (warp, wave). */
#ifndef TK_SUBGROUP
#if defined(__AMDGCN_WAVEFRONT_SIZE__)
#define TK_SUBGROUP __AMDGCN_WAVEFRONT_SIZE__
#elif defined(__AMDGCN_WAVEFRONT_SIZE)
#define TK_SUBGROUP __AMDGCN_WAVEFRONT_SIZE
#elif defined(TK_IS_HIP)
#define TK_SUBGROUP 64
#else
#define TK_SUBGROUP 32
#endif
#endif

/* ---------------------------------------------------------------- types: tk_f32x4, tk_i8x16, ... */

template <int bytes> constexpr int tk_alignment = bytes >= 16 ? 16 : bytes;

template <class T, int n> struct alignas(tk_alignment<(int)sizeof(T) * n>) tk_vector {
    T at[n];
    __device__ __forceinline__ T &operator[](int i) { return at[i]; }
    __device__ __forceinline__ const T &operator[](int i) const { return at[i]; }
};

#define TK_DECLARE_VECTORS(T, name)      \
    typedef T tk_##name##x1;             \
    typedef tk_vector<T, 2> tk_##name##x2;   \
    typedef tk_vector<T, 4> tk_##name##x4;   \
    typedef tk_vector<T, 8> tk_##name##x8;   \
    typedef tk_vector<T, 16> tk_##name##x16;
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

/* The element type of a vector, and the number of its lanes; a scalar is a vector of one lane. */
template <class V> struct tk_type {
    typedef V scalar;
    static constexpr int lanes = 1;
};
template <class T, int n> struct tk_type<tk_vector<T, n>> {
    typedef T scalar;
    static constexpr int lanes = n;
};
template <class V> constexpr int tk_lanes = tk_type<V>::lanes;
template <class V> using tk_scalar = typename tk_type<V>::scalar;

template <class T, int n> struct tk_make_vec { typedef tk_vector<T, n> type; };
template <class T> struct tk_make_vec<T, 1> { typedef T type; };
template <class T, int n> using tk_vec = typename tk_make_vec<T, n>::type;

template <int bytes> struct tk_int_of;
template <> struct tk_int_of<1> { typedef int8_t i; typedef uint8_t u; };
template <> struct tk_int_of<2> { typedef int16_t i; typedef uint16_t u; };
template <> struct tk_int_of<4> { typedef int32_t i; typedef uint32_t u; };
template <> struct tk_int_of<8> { typedef int64_t i; typedef uint64_t u; };
/* Signed integers of the same size and number of lanes: what comparisons of vectors give, 0 or -1 in each lane. */
template <class V> using tk_ints = tk_vec<typename tk_int_of<sizeof(tk_scalar<V>)>::i, tk_lanes<V>>;

template <class A, class B> struct tk_same { static constexpr bool value = false; };
template <class A> struct tk_same<A, A> { static constexpr bool value = true; };
template <class V> constexpr bool tk_is_f32 = tk_same<tk_scalar<V>, float>::value;
template <class V> constexpr bool tk_is_float = tk_is_f32<V> || tk_same<tk_scalar<V>, double>::value;

/* ---------------------------------------------------------------- values */

/* Reinterpret the bits. */
template <class To, class V> TK_INLINE To tk_bitcast(V v) {
    static_assert(sizeof(To) == sizeof(V), "sizes differ");
    To result;
    memcpy(&result, &v, sizeof result);
    return result;
}

TK_INLINE float tk_f32_of_bits(uint32_t bits) { return tk_bitcast<float>(bits); }
#define TK_INFINITY tk_f32_of_bits(0x7f800000u)
#define TK_NAN tk_f32_of_bits(0x7fc00000u)

template <class V> TK_INLINE V tk_splat(tk_scalar<V> s) {
    if constexpr (tk_lanes<V> == 1) {
        return s;
    } else {
        V v;
        TK_EACH(tk_lanes<V>) v.at[i] = s;
        return v;
    }
}

/* base, base + step, base + 2 * step, ... */
template <class V> TK_INLINE V tk_ramp(tk_scalar<V> base, tk_scalar<V> step) {
    if constexpr (tk_lanes<V> == 1) {
        return base;
    } else {
        V v;
        TK_EACH(tk_lanes<V>) v.at[i] = (tk_scalar<V>)(base + (tk_scalar<V>)i * step);
        return v;
    }
}

#define TK_OPERATOR(op)                                                                                     \
    template <class T, int n> TK_INLINE tk_vector<T, n> operator op(tk_vector<T, n> a, tk_vector<T, n> b) { \
        tk_vector<T, n> r;                                                                                  \
        TK_EACH(n) r.at[i] = (T)(a.at[i] op b.at[i]);                                                       \
        return r;                                                                                           \
    }                                                                                                       \
    template <class T, int n> TK_INLINE tk_vector<T, n> &operator op##=(tk_vector<T, n> &a, tk_vector<T, n> b) { \
        a = a op b;                                                                                         \
        return a;                                                                                           \
    }
TK_OPERATOR(+)
TK_OPERATOR(-)
TK_OPERATOR(*)
TK_OPERATOR(/)
TK_OPERATOR(%)
TK_OPERATOR(&)
TK_OPERATOR(|)
TK_OPERATOR(^)
TK_OPERATOR(<<)
TK_OPERATOR(>>)

#define TK_COMPARISON(op)                                                                                   \
    template <class T, int n> TK_INLINE tk_ints<tk_vector<T, n>> operator op(tk_vector<T, n> a, tk_vector<T, n> b) { \
        tk_ints<tk_vector<T, n>> r;                                                                         \
        TK_EACH(n) r.at[i] = a.at[i] op b.at[i] ? -1 : 0;                                                   \
        return r;                                                                                           \
    }                                                                                                       \
    template <class T, int n> TK_INLINE tk_ints<tk_vector<T, n>> operator op(tk_vector<T, n> a, int b) {    \
        return a op tk_splat<tk_vector<T, n>>((T)b);                                                        \
    }
TK_COMPARISON(<)
TK_COMPARISON(<=)
TK_COMPARISON(>)
TK_COMPARISON(>=)
TK_COMPARISON(==)
TK_COMPARISON(!=)

template <class T, int n> TK_INLINE tk_vector<T, n> operator-(tk_vector<T, n> a) {
    TK_EACH(n) a.at[i] = (T)-a.at[i];
    return a;
}
template <class T, int n> TK_INLINE tk_vector<T, n> operator~(tk_vector<T, n> a) {
    TK_EACH(n) a.at[i] = (T)~a.at[i];
    return a;
}

/* Convert every lane as C++ does: floats to integers towards zero. */
template <class To, class V> TK_INLINE tk_vec<To, tk_lanes<V>> tk_convert(V v) {
    if constexpr (tk_lanes<V> == 1) {
        return (To)v;
    } else {
        tk_vec<To, tk_lanes<V>> r;
        TK_EACH(tk_lanes<V>) r.at[i] = (To)v.at[i];
        return r;
    }
}

/* Lane-wise mask ? a : b; `mask` is a bool for scalars, else integers of any size. */
template <class M, class V> TK_INLINE V tk_select(M mask, V a, V b) {
    if constexpr (tk_lanes<V> == 1) {
        return mask ? a : b;
    } else {
        TK_EACH(tk_lanes<V>) a.at[i] = mask.at[i] ? a.at[i] : b.at[i];
        return a;
    }
}

/* Lanes of `a` followed by those of `b`, picked by constant index. */
template <int... index, class V> TK_INLINE tk_vec<tk_scalar<V>, (int)sizeof...(index)> tk_shuffle(V a, V b) {
    constexpr int lanes = tk_lanes<V>;
    if constexpr (lanes == 1) return {(index < 1 ? a : b)...};
    else return {(index < lanes ? a.at[index % lanes] : b.at[index % lanes])...};
}

/* ---------------------------------------------------------------- memory */

/* The lanes that lie one after the other at `from`; aligned as one element is. */
template <class V> TK_INLINE V tk_load(const tk_scalar<V> *from) {
    if constexpr (tk_lanes<V> == 1) {
        return *from;
    } else {
        V v;
        TK_EACH(tk_lanes<V>) v.at[i] = from[i];
        return v;
    }
}

/* Says that a place is aligned; the emulator checks it. */
#ifndef TK_CHECK_ALIGNED
#define TK_CHECK_ALIGNED(place, bytes) ((void)0)
#endif

/* The same in accesses of up to 16 bytes; aligned to the size of the vector, at most 16. */
template <class V> TK_INLINE V tk_load_aligned(const tk_scalar<V> *from) {
    TK_CHECK_ALIGNED(from, alignof(V));
    return *(const V *)from;
}

/* Stores convert: masks, which are signed, become the unsigned bytes of bool. */
template <class T, class V> TK_INLINE void tk_store(T *to, V v) {
    if constexpr (tk_lanes<V> == 1) {
        *to = (T)v;
    } else {
        TK_EACH(tk_lanes<V>) to[i] = (T)v.at[i];
    }
}

template <class T, class V> TK_INLINE void tk_store_aligned(T *to, V v) {
    typedef tk_vec<T, tk_lanes<V>> stored;
    TK_CHECK_ALIGNED(to, alignof(stored));
    if constexpr (tk_same<stored, V>::value) *(stored *)to = v;
    else *(stored *)to = tk_convert<T>(v);
}

/* Lane i holds from[i * step]. */
template <class V> TK_INLINE V tk_load_strided(const tk_scalar<V> *from, int64_t step) {
    if constexpr (tk_lanes<V> == 1) {
        return *from;
    } else {
        V v;
        TK_EACH(tk_lanes<V>) v.at[i] = from[i * step];
        return v;
    }
}

template <class T, class V> TK_INLINE void tk_store_strided(T *to, int64_t step, V v) {
    if constexpr (tk_lanes<V> == 1) {
        *to = (T)v;
    } else {
        TK_EACH(tk_lanes<V>) to[i * step] = (T)v.at[i];
    }
}

/* Lanes i < count hold from[i], the others `other`; memory of the others is not touched. Any count is allowed. */
template <class V> TK_INLINE V tk_load_partial(const tk_scalar<V> *from, int64_t count, V other) {
    if constexpr (tk_lanes<V> == 1) {
        return count > 0 ? *from : other;
    } else {
        TK_EACH(tk_lanes<V>) if (i < count) other.at[i] = from[i];
        return other;
    }
}

template <class T, class V> TK_INLINE void tk_store_partial(T *to, V v, int64_t count) {
    if constexpr (tk_lanes<V> == 1) {
        if (count > 0) *to = (T)v;
    } else {
        TK_EACH(tk_lanes<V>) if (i < count) to[i] = (T)v.at[i];
    }
}

/* Lane i holds base[index[i]]. */
template <class V, class I> TK_INLINE V tk_gather(const tk_scalar<V> *base, I index) {
    if constexpr (tk_lanes<V> == 1) {
        return base[index];
    } else {
        V v;
        TK_EACH(tk_lanes<V>) v.at[i] = base[index.at[i]];
        return v;
    }
}

/* base[index[i]] = lane i, in the order of the lanes. */
template <class T, class I, class V> TK_INLINE void tk_scatter(T *base, I index, V v) {
    if constexpr (tk_lanes<V> == 1) {
        base[index] = (T)v;
    } else {
        TK_EACH(tk_lanes<V>) base[index.at[i]] = (T)v.at[i];
    }
}

/* Asks for the memory at from[distance], which need not be part of anything, up to the second-level cache. */
template <class T> TK_INLINE void tk_prefetch(const T *from, int64_t distance) {
#if defined(__CUDA_ARCH__)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(from + distance));
#else
    (void)from, (void)distance;
#endif
}

/* ---------------------------------------------------------------- smallest, largest; horizontal reductions */

/* fn(a.at[i], b.at[i]) in every lane. */
#define TK_BY_LANE_2(fn, a, b)                                        \
    V r;                                                              \
    TK_EACH(tk_lanes<V>) r.at[i] = fn<tk_scalar<V>>(a.at[i], b.at[i]); \
    return r

/* ONNX's rule, as numpy's: a NaN in either operand is the result. */
template <class V> TK_INLINE V tk_max(V a, V b) {
    if constexpr (tk_lanes<V> > 1) {
        TK_BY_LANE_2(tk_max, a, b);
    } else if constexpr (tk_is_float<V>) {
        return a != a ? a : a > b ? a : b;
    } else {
        return a > b ? a : b;
    }
}
template <class V> TK_INLINE V tk_min(V a, V b) {
    if constexpr (tk_lanes<V> > 1) {
        TK_BY_LANE_2(tk_min, a, b);
    } else if constexpr (tk_is_float<V>) {
        return a != a ? a : a < b ? a : b;
    } else {
        return a < b ? a : b;
    }
}

/* max(x, 0); NaN stays NaN. */
template <class V> TK_INLINE V tk_relu(V x) {
    if constexpr (tk_lanes<V> > 1) {
        TK_EACH(tk_lanes<V>) x.at[i] = tk_relu(x.at[i]);
        return x;
    } else {
        return (V)0 > x ? (V)0 : x;
    }
}

/* First half with second half until one lane is left. */
#define TK_DECLARE_REDUCTION(name, combined)                                           \
    template <class V> TK_INLINE tk_scalar<V> tk_reduce_##name(V v) {                  \
        if constexpr (tk_lanes<V> == 1) {                                              \
            return v;                                                                  \
        } else {                                                                       \
            typedef tk_scalar<V> T;                                                    \
            tk_vec<T, tk_lanes<V> / 2> half;                                           \
            TK_EACH(tk_lanes<V> / 2) {                                                 \
                const T a = v.at[i], b = v.at[i + tk_lanes<V> / 2];                    \
                if constexpr (tk_lanes<V> == 2) half = (T)(combined);                  \
                else half.at[i] = (T)(combined);                                       \
            }                                                                          \
            return tk_reduce_##name(half);                                             \
        }                                                                              \
    }
TK_DECLARE_REDUCTION(add, a + b)
TK_DECLARE_REDUCTION(mul, a * b)
TK_DECLARE_REDUCTION(max, tk_max<T>(a, b))
TK_DECLARE_REDUCTION(min, tk_min<T>(a, b))

/* ---------------------------------------------------------------- integer division that never traps */

/* Quotient rounded towards zero. The quotient by zero is zero, that of the most negative number by -1 wraps around. */
template <class V> TK_INLINE V tk_truncdiv(V a, V b) {
    if constexpr (tk_lanes<V> > 1) {
        TK_BY_LANE_2(tk_truncdiv, a, b);
    } else {
        const bool minus = (V)-1 < (V)0 && b == (V)-1;
        const V quotient = (V)(a / (b == 0 || minus ? (V)1 : b));
        return b == 0 ? (V)0 : minus ? (V)(0 - (uint64_t)a) : quotient;
    }
}
template <class V> TK_INLINE V tk_truncmod(V a, V b) {
    if constexpr (tk_lanes<V> > 1) {
        TK_BY_LANE_2(tk_truncmod, a, b);
    } else {
        return (V)(a - tk_truncdiv<V>(a, b) * b);
    }
}

/* The same, rounded towards minus infinity. */
template <class V> TK_INLINE V tk_floordiv(V a, V b) {
    if constexpr (tk_lanes<V> > 1) {
        TK_BY_LANE_2(tk_floordiv, a, b);
    } else {
        const V quotient = tk_truncdiv<V>(a, b), rest = (V)(a - quotient * b);
        return (V)(quotient - (rest != 0 && (rest < 0) != (b < 0)));
    }
}
template <class V> TK_INLINE V tk_floormod(V a, V b) {
    if constexpr (tk_lanes<V> > 1) {
        TK_BY_LANE_2(tk_floormod, a, b);
    } else {
        return (V)(a - tk_floordiv<V>(a, b) * b);
    }
}

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
TK_DECLARE_NARROW(f16, uint16_t)
TK_DECLARE_NARROW(bf16, uint16_t)
TK_DECLARE_NARROW(f8e4m3, uint8_t)
TK_DECLARE_NARROW(f8e5m2, uint8_t)

/* ---------------------------------------------------------------- sub-groups: all lanes take part */

#if defined(TK_IS_HIP)
#if defined(__AMDGCN__)
#define TK_SUBGROUP_BARRIER()                                  \
    do {                                                       \
        __builtin_amdgcn_fence(__ATOMIC_RELEASE, "wavefront"); \
        __builtin_amdgcn_wave_barrier();                       \
        __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "wavefront"); \
    } while (0)
#elif !defined(TK_SUBGROUP_BARRIER)
#define TK_SUBGROUP_BARRIER() ((void)0) /* the pass for the host, which runs no kernel */
#endif
#define TK_SHUFFLE(kind, value, lane) __shfl##kind(value, lane)
#else
#ifndef TK_SUBGROUP_BARRIER
#define TK_SUBGROUP_BARRIER() __syncwarp()
#endif
#define TK_SHUFFLE(kind, value, lane) __shfl##kind##_sync(0xffffffffu, value, lane)
#endif

/* What a shuffle moves in place of T. */
template <class T> struct tk_moved { typedef T type; };
template <> struct tk_moved<bool> { typedef int type; };
template <> struct tk_moved<int8_t> { typedef int type; };
template <> struct tk_moved<uint8_t> { typedef int type; };
template <> struct tk_moved<int16_t> { typedef int type; };
template <> struct tk_moved<uint16_t> { typedef int type; };
template <> struct tk_moved<int64_t> { typedef long long type; };
template <> struct tk_moved<uint64_t> { typedef unsigned long long type; };

/* shuffle: the value of lane `lane`; xor: of lane own ^ lane; up, down: of lane own - lane, own + lane. */
#define TK_DECLARE_SHUFFLE(name, kind)                                                             \
    template <class V> TK_INLINE V tk_subgroup_##name(V v, int lane) {                             \
        if constexpr (tk_lanes<V> > 1) {                                                           \
            TK_EACH(tk_lanes<V>) v.at[i] = tk_subgroup_##name(v.at[i], lane);                      \
            return v;                                                                              \
        } else {                                                                                   \
            return (V)TK_SHUFFLE(kind, (typename tk_moved<V>::type)v, lane);                       \
        }                                                                                          \
    }
TK_DECLARE_SHUFFLE(shuffle, )
TK_DECLARE_SHUFFLE(shuffle_xor, _xor)
TK_DECLARE_SHUFFLE(shuffle_up, _up)
TK_DECLARE_SHUFFLE(shuffle_down, _down)

/* Combine the values of groups of `width` neighbouring lanes; every lane gets the result of its group. */
#define TK_DECLARE_SUBGROUP(name, combined)                                        \
    template <int width, class T> TK_INLINE T tk_subgroup_##name##_of(T a) {       \
        TK_UNROLLED for (int step = width / 2; step > 0; step /= 2) {              \
            const T b = tk_subgroup_shuffle_xor(a, step);                          \
            a = (T)(combined);                                                     \
        }                                                                          \
        return a;                                                                  \
    }                                                                              \
    template <class T> TK_INLINE T tk_subgroup_##name(T a) { return tk_subgroup_##name##_of<TK_SUBGROUP>(a); }
TK_DECLARE_SUBGROUP(add, a + b)
TK_DECLARE_SUBGROUP(mul, a * b)
TK_DECLARE_SUBGROUP(max, tk_max<T>(a, b))
TK_DECLARE_SUBGROUP(min, tk_min<T>(a, b))
TK_DECLARE_SUBGROUP(and, a & b)
TK_DECLARE_SUBGROUP(or, a | b)

/* ---------------------------------------------------------------- atomics */

/* The old value, replaced by combine(old, value); for types of 4 and 8 bytes. */
template <class T, class F> TK_INLINE T tk_atomic_by(T *at, T value, F combine) {
    if constexpr (sizeof(T) == 4) {
        unsigned int *bits = (unsigned int *)at, seen = *(volatile unsigned int *)bits, expected;
        do {
            expected = seen;
            seen = atomicCAS(bits, expected, tk_bitcast<unsigned int>(combine(tk_bitcast<T>(expected), value)));
        } while (seen != expected);
        return tk_bitcast<T>(seen);
    } else {
        static_assert(sizeof(T) == 8, "no atomics on elements of one or two bytes");
        unsigned long long *bits = (unsigned long long *)at, seen = *(volatile unsigned long long *)bits, expected;
        do {
            expected = seen;
            seen = atomicCAS(bits, expected, tk_bitcast<unsigned long long>(combine(tk_bitcast<T>(expected), value)));
        } while (seen != expected);
        return tk_bitcast<T>(seen);
    }
}

template <class T> TK_INLINE T tk_atomic_add(T *at, T value) {
    if constexpr (tk_same<T, int64_t>::value || tk_same<T, uint64_t>::value)
        return (T)atomicAdd((unsigned long long *)at, (unsigned long long)value);
    else return atomicAdd(at, value);
}
#define TK_DECLARE_ATOMIC(name, combined)                                                        \
    template <class T> TK_INLINE T tk_atomic_##name(T *at, T value) {                            \
        struct combine {                                                                         \
            __device__ __forceinline__ T operator()(T a, T b) const { return (T)(combined); }    \
        };                                                                                       \
        return tk_atomic_by(at, value, combine());                                               \
    }
TK_DECLARE_ATOMIC(mul, a * b)
TK_DECLARE_ATOMIC(min, tk_min<T>(a, b))
TK_DECLARE_ATOMIC(max, tk_max<T>(a, b))
TK_DECLARE_ATOMIC(bitand, a & b)
TK_DECLARE_ATOMIC(bitor, a | b)
TK_DECLARE_ATOMIC(bitxor, a ^ b)
template <class T> TK_INLINE T tk_atomic_exchange(T *at, T value) {
    struct latter {
        __device__ __forceinline__ T operator()(T, T b) const { return b; }
    };
    return tk_atomic_by(at, value, latter());
}

/* ---------------------------------------------------------------- copies from global to shared memory */

/* Starts copying 4, 8 or 16 bytes, both places aligned to that; done at once where the hardware has no such copies. */
template <int bytes> TK_INLINE void tk_async_copy(void *shared, const void *global) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "a copy moves 4, 8 or 16 bytes");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const unsigned int to = (unsigned int)__cvta_generic_to_shared(shared);
    if constexpr (bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(global) : "memory");
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(global), "n"(bytes) : "memory");
#elif defined(TK_EMULATOR)
    tk_emu_async_copy(shared, global, bytes);
#else
    typedef tk_vec<uint32_t, bytes / 4> word;
    *(word *)shared = *(const word *)global;
#endif
}

/* Closes the open group of copies. */
TK_INLINE void tk_async_commit() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#elif defined(TK_EMULATOR)
    tk_emu_async_commit();
#endif
}

/* Waits until at most `pending` closed groups of this thread are unfinished; others see them after a barrier. */
template <int pending> TK_INLINE void tk_async_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
#elif defined(TK_EMULATOR)
    tk_emu_async_wait(pending);
#endif
}

/* ---------------------------------------------------------------- products of bytes */

/* c + the sum of the four products of the signed bytes of a and b; wraps around. */
TK_INLINE int32_t tk_dp4a(int32_t a, int32_t b, int32_t c) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 610
    return __dp4a(a, b, c);
#else
    TK_EACH(4) c = (int32_t)((uint32_t)c + (uint32_t)((int32_t)(int8_t)(a >> 8 * i) * (int32_t)(int8_t)(b >> 8 * i)));
    return c;
#endif
}

#endif /* TK_SIMT_H */
