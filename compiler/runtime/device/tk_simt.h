/* What generated CUDA and HIP kernels are written in: integers of fixed width, vectors, memory, division (this file),
 * tk_simt_math.h, tk_simt_threads.h. The texts stand in front of the kernels of a module, in this order; they include
 * nothing that a run-time compiler would have to find. C++17.
 *
 * Compiled by NVRTC, nvcc, clang++ (-x cuda, -x hip), hipcc, hiprtc. A host C++ compiler takes the same text when a
 * header in front of it defines TK_EMULATOR and the words below; TK_HIP marks a module in HIP.
 *
 * Words of the device, all that these headers and the kernels use:
 *   marks        __global__ __device__ __shared__ __forceinline__ __launch_bounds__(threads, blocks)
 *                CUDA from sm_90 on: __cluster_dims__(1, 1, blocks)
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

/* The larger and the smaller float, and the larger of one and 0: NaN if there is one. */
template <class V> TK_INLINE V tk_larger(V a, V b) { return a != a ? a : a > b ? a : b; }
template <class V> TK_INLINE V tk_smaller(V a, V b) { return a != a ? a : a < b ? a : b; }
template <class V> TK_INLINE V tk_not_negative(V x) { return (V)0 > x ? (V)0 : x; }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800 /* one instruction each */
TK_INLINE float tk_larger(float a, float b) {
    float r;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
TK_INLINE float tk_smaller(float a, float b) {
    float r;
    asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
    return r;
}
TK_INLINE float tk_not_negative(float x) { return tk_larger(x, 0.0f); }
#endif

/* ONNX's rule, as numpy's: a NaN in either operand is the result. */
template <class V> TK_INLINE V tk_max(V a, V b) {
    if constexpr (tk_lanes<V> > 1) {
        TK_BY_LANE_2(tk_max, a, b);
    } else if constexpr (tk_is_float<V>) {
        return tk_larger(a, b);
    } else {
        return a > b ? a : b;
    }
}
template <class V> TK_INLINE V tk_min(V a, V b) {
    if constexpr (tk_lanes<V> > 1) {
        TK_BY_LANE_2(tk_min, a, b);
    } else if constexpr (tk_is_float<V>) {
        return tk_smaller(a, b);
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
        return tk_not_negative(x);
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

#endif /* TK_SIMT_H */
