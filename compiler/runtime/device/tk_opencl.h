/* What generated kernels in OpenCL C are written in: memory by lanes, integer division, narrow floats, and the math
 * functions that OpenCL lacks or defines in another way. Its text stands in front of the kernels of a module.
 *
 * OpenCL C 1.2 (Khronos, "The OpenCL Specification 1.2", chapter 6), with two words of clang that every compiler
 * of the four vendors has, because all are built on clang: the attribute `overloadable` and
 * __builtin_shufflevector. f64 where the device has cl_khr_fp64.
 *
 * Functions whose operands have to be of one type carry its name (tk_max_float16); the others are overloaded over
 * types, and over the address spaces of pointers. Floating point is IEEE 754 apart from contraction.
 */
#ifndef TK_OPENCL_H
#define TK_OPENCL_H

#pragma OPENCL FP_CONTRACT ON
#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define TK_IF_F64(text) text
#else
#define TK_IF_F64(text)
#endif

/* Words of C that the printer uses for every language. */
#define int32_t int
#define int64_t long

#define TK_FUNCTION static inline __attribute__((overloadable, always_inline))

/* ---------------------------------------------------------------- tables: X(scalar or vector type, ...) */

#define TK_FLOATS(X) X(float, int, uint) TK_IF_F64(X(double, long, ulong))
#define TK_SIGNED(X) X(char, char, uchar) X(short, short, ushort) X(int, int, uint) X(long, long, ulong)
#define TK_UNSIGNED(X) X(uchar, char, uchar) X(ushort, short, ushort) X(uint, int, uint) X(ulong, long, ulong)
#define TK_TYPES(X) TK_FLOATS(X) TK_SIGNED(X) TK_UNSIGNED(X)

/* For each vector of a type: X(vector, signed integers of its size, unsigned ones). */
#define TK_VECTORS(X, T, I, U) X(T##2, I##2, U##2) X(T##4, I##4, U##4) X(T##8, I##8, U##8) X(T##16, I##16, U##16)
#define TK_VECTORS_OF_FLOATS(X) TK_VECTORS(X, float, int, uint) TK_IF_F64(TK_VECTORS(X, double, long, ulong))
#define TK_VECTORS_OF_SIGNED(X)      \
    TK_VECTORS(X, char, char, uchar) \
    TK_VECTORS(X, short, short, ushort) TK_VECTORS(X, int, int, uint) TK_VECTORS(X, long, long, ulong)
#define TK_VECTORS_OF_UNSIGNED(X)     \
    TK_VECTORS(X, uchar, char, uchar) \
    TK_VECTORS(X, ushort, short, ushort) TK_VECTORS(X, uint, int, uint) TK_VECTORS(X, ulong, long, ulong)

/* ---------------------------------------------------------------- smallest, largest, reductions */

/* ONNX's rule, as numpy's: a NaN in either operand is the result. OpenCL's fmax and fmin drop it. */
#define TK_EXTREMA_OF_FLOATS(T, I, U)                                                                            \
    TK_FUNCTION T tk_max_##T(T a, T b) {                                                                         \
        const T larger = a > b ? a : b;                                                                          \
        return a != a ? a : larger;                                                                              \
    }                                                                                                            \
    TK_FUNCTION T tk_min_##T(T a, T b) {                                                                         \
        const T smaller = a < b ? a : b;                                                                         \
        return a != a ? a : smaller;                                                                             \
    }                                                                                                            \
    TK_FUNCTION T tk_relu(T x) { return (T)(0) > x ? (T)(0) : x; }
TK_FLOATS(TK_EXTREMA_OF_FLOATS)
TK_VECTORS_OF_FLOATS(TK_EXTREMA_OF_FLOATS)

#define TK_EXTREMA_OF_INTS(T, I, U)                              \
    TK_FUNCTION T tk_max_##T(T a, T b) { return max(a, b); }     \
    TK_FUNCTION T tk_min_##T(T a, T b) { return min(a, b); }
TK_SIGNED(TK_EXTREMA_OF_INTS)
TK_UNSIGNED(TK_EXTREMA_OF_INTS)
TK_VECTORS_OF_SIGNED(TK_EXTREMA_OF_INTS)
TK_VECTORS_OF_UNSIGNED(TK_EXTREMA_OF_INTS)

/* All lanes combined, by halves. */
#define TK_REDUCTIONS(T, I, U)                                                                                  \
    TK_FUNCTION T tk_reduce_add(T##2 v) { return v.s0 + v.s1; }                                                 \
    TK_FUNCTION T tk_reduce_mul(T##2 v) { return v.s0 * v.s1; }                                                 \
    TK_FUNCTION T tk_reduce_max(T##2 v) { return tk_max_##T(v.s0, v.s1); }                                      \
    TK_FUNCTION T tk_reduce_min(T##2 v) { return tk_min_##T(v.s0, v.s1); }                                      \
    TK_REDUCTIONS_BY_HALVES(T##4, T##2, T)                                                                      \
    TK_REDUCTIONS_BY_HALVES(T##8, T##4, T)                                                                      \
    TK_REDUCTIONS_BY_HALVES(T##16, T##8, T)
#define TK_REDUCTIONS_BY_HALVES(V, H, T)                                                                        \
    TK_FUNCTION T tk_reduce_add(V v) { return tk_reduce_add(v.lo + v.hi); }                                     \
    TK_FUNCTION T tk_reduce_mul(V v) { return tk_reduce_mul(v.lo * v.hi); }                                     \
    TK_FUNCTION T tk_reduce_max(V v) { return tk_reduce_max(tk_max_##H(v.lo, v.hi)); }                          \
    TK_FUNCTION T tk_reduce_min(V v) { return tk_reduce_min(tk_min_##H(v.lo, v.hi)); }
TK_TYPES(TK_REDUCTIONS)

/* ---------------------------------------------------------------- integer division */

/* Quotient rounded towards zero, and the remainder that goes with it. Nothing traps, whatever the tensors hold:
 * the quotient by zero is zero, and that of the most negative number by -1 wraps around. */
#define TK_DIVISION_SIGNED(T, I, U)                                                                             \
    TK_FUNCTION T tk_truncdiv_##T(T a, T b) {                                                                   \
        if (b == 0) return 0;                                                                                   \
        return b == (T)-1 ? (T)(0 - (U)a) : (T)(a / b);                                                         \
    }                                                                                                           \
    TK_REMAINDERS(T)                                                                                            \
    TK_FUNCTION T tk_floordiv_##T(T a, T b) {                                                                   \
        const T q = tk_truncdiv_##T(a, b), r = (T)(a - q * b);                                                  \
        return (T)(q - ((r != 0) & ((r < 0) != (b < 0))));                                                      \
    }
#define TK_DIVISION_UNSIGNED(T, I, U)                                                                           \
    TK_FUNCTION T tk_truncdiv_##T(T a, T b) { return b == 0 ? (T)0 : (T)(a / b); }                              \
    TK_REMAINDERS(T)                                                                                            \
    TK_FUNCTION T tk_floordiv_##T(T a, T b) { return tk_truncdiv_##T(a, b); }
#define TK_DIVISION_SIGNED_VECTOR(T, I, U)                                                                      \
    TK_FUNCTION T tk_truncdiv_##T(T a, T b) {                                                                   \
        const I zero = b == (T)(0), minus = b == (T)(-1);                                                       \
        const T q = a / ((zero | minus) ? (T)(1) : b);                                                          \
        return zero ? (T)(0) : (minus ? (T)(0) - a : q);                                                        \
    }                                                                                                           \
    TK_REMAINDERS(T)                                                                                            \
    TK_FUNCTION T tk_floordiv_##T(T a, T b) {                                                                   \
        const T q = tk_truncdiv_##T(a, b), r = a - q * b;                                                       \
        return q + ((r != (T)(0)) & ((r < (T)(0)) ^ (b < (T)(0))));                                             \
    }
#define TK_DIVISION_UNSIGNED_VECTOR(T, I, U)                                                                    \
    TK_FUNCTION T tk_truncdiv_##T(T a, T b) {                                                                   \
        const I zero = b == (T)(0);                                                                             \
        return zero ? (T)(0) : a / (zero ? (T)(1) : b);                                                         \
    }                                                                                                           \
    TK_REMAINDERS(T)                                                                                            \
    TK_FUNCTION T tk_floordiv_##T(T a, T b) { return tk_truncdiv_##T(a, b); }
#define TK_REMAINDERS(T)                                                                                        \
    TK_FUNCTION T tk_floordiv_##T(T a, T b);                                                                    \
    TK_FUNCTION T tk_truncmod_##T(T a, T b) { return (T)(a - tk_truncdiv_##T(a, b) * b); }                      \
    TK_FUNCTION T tk_floormod_##T(T a, T b) { return (T)(a - tk_floordiv_##T(a, b) * b); }
TK_SIGNED(TK_DIVISION_SIGNED)
TK_UNSIGNED(TK_DIVISION_UNSIGNED)
TK_VECTORS_OF_SIGNED(TK_DIVISION_SIGNED_VECTOR)
TK_VECTORS_OF_UNSIGNED(TK_DIVISION_UNSIGNED_VECTOR)

/* ---------------------------------------------------------------- memory by lanes
 *
 * vloadN and vstoreN move consecutive elements; these the others. An index or a step counts elements. */

#define TK_INDEX(n, index) convert_long##n(index)

#define TK_LANES_2(X) X(0, 0) X(1, 1)
#define TK_LANES_4(X) TK_LANES_2(X) X(2, 2) X(3, 3)
#define TK_LANES_8(X) TK_LANES_4(X) X(4, 4) X(5, 5) X(6, 6) X(7, 7)
#define TK_LANES_16(X) TK_LANES_8(X) X(8, 8) X(9, 9) X(10, a) X(11, b) X(12, c) X(13, d) X(14, e) X(15, f)

#define TK_READ_STRIDED(number, lane) v.s##lane = from[number * step];
#define TK_WRITE_STRIDED(number, lane) to[number * step] = v.s##lane;
#define TK_READ_PARTIAL(number, lane) if (number < count) v.s##lane = from[number];
#define TK_WRITE_PARTIAL(number, lane) if (number < count) to[number] = v.s##lane;
#define TK_READ_AT(number, lane) v.s##lane = from[index.s##lane];
#define TK_WRITE_AT(number, lane) to[index.s##lane] = v.s##lane;

/* In the order of the lanes. Partial: memory of the lanes that are off is not touched; any count is allowed. */
#define TK_MEMORY(space, T, n)                                                                                  \
    TK_FUNCTION T##n tk_load_strided_##T##n(const space T *from, long step) {                                   \
        T##n v;                                                                                                 \
        TK_LANES_##n(TK_READ_STRIDED) return v;                                                                 \
    }                                                                                                           \
    TK_FUNCTION void tk_store_strided_##T##n(space T *to, long step, T##n v) { TK_LANES_##n(TK_WRITE_STRIDED) } \
    TK_FUNCTION T##n tk_load_partial_##T##n(const space T *from, long count, T##n v) {                          \
        if (count >= n) return vload##n(0, from);                                                               \
        TK_LANES_##n(TK_READ_PARTIAL) return v;                                                                 \
    }                                                                                                           \
    TK_FUNCTION void tk_store_partial_##T##n(space T *to, T##n v, long count) {                                 \
        if (count >= n) {                                                                                       \
            vstore##n(v, 0, to);                                                                                \
            return;                                                                                             \
        }                                                                                                       \
        TK_LANES_##n(TK_WRITE_PARTIAL)                                                                          \
    }                                                                                                           \
    TK_FUNCTION T##n tk_gather_##T##n(const space T *from, long##n index) {                                     \
        T##n v;                                                                                                 \
        TK_LANES_##n(TK_READ_AT) return v;                                                                      \
    }                                                                                                           \
    TK_FUNCTION void tk_scatter_##T##n(space T *to, long##n index, T##n v) { TK_LANES_##n(TK_WRITE_AT) }        \
    TK_FUNCTION T##n tk_load_aligned_##T##n(const space T *from) { return *(const space T##n *)from; }          \
    TK_FUNCTION void tk_store_aligned_##T##n(space T *to, T##n v) { *(space T##n *)to = v; }
#define TK_MEMORY_OF_SPACES(T, n) TK_MEMORY(__global, T, n) TK_MEMORY(__local, T, n) TK_MEMORY(__private, T, n)
#define TK_MEMORY_OF_TYPE(T, I, U) \
    TK_MEMORY_OF_SPACES(T, 2) TK_MEMORY_OF_SPACES(T, 4) TK_MEMORY_OF_SPACES(T, 8) TK_MEMORY_OF_SPACES(T, 16)
TK_TYPES(TK_MEMORY_OF_TYPE)

/* Asks for global memory at from[distance], which need not be part of anything. OpenCL's own prefetch is a call in
 * Intel's runtime for processors, around which every vector register is saved. */
#define TK_PREFETCH(T, I, U)                                                                                    \
    TK_FUNCTION void tk_prefetch(const __global T *from, long distance) {                                       \
        __builtin_prefetch((const void *)(ulong)(from + distance), 0, 2);                                       \
    }                                                                                                           \
    TK_FUNCTION void tk_prefetch(const __local T *from, long distance) {}                                       \
    TK_FUNCTION void tk_prefetch(const __private T *from, long distance) {}
TK_TYPES(TK_PREFETCH)

/* ---------------------------------------------------------------- functions that OpenCL lacks or defines otherwise */

#define TK_MATH(T, I, U)                                                                                        \
    TK_FUNCTION T tk_abs(T x) { return fabs(x); }                                                               \
    TK_FUNCTION T tk_reciprocal(T x) { return (T)(1) / x; }                                                     \
    /* exp(x) where x <= 0. */                                                                                  \
    TK_FUNCTION T tk_exp_nonpositive(T x) { return exp(x); }                                                    \
    /* The small exponential goes to the side where it does not cancel; nothing overflows. */                   \
    TK_FUNCTION T tk_sigmoid(T x) {                                                                             \
        const T e = exp(-fabs(x));                                                                              \
        return (x < (T)(0) ? e : (T)(1)) / ((T)(1) + e);                                                        \
    }                                                                                                           \
    /* log(1 + exp(x)). */                                                                                      \
    TK_FUNCTION T tk_softplus(T x) { return tk_max_##T(x, (T)(0)) + log1p(exp(-fabs(x))); }                     \
    /* -1, 0 or 1; NaN for NaN. */                                                                              \
    TK_FUNCTION T tk_sign(T x) { return x > (T)(0) ? (T)(1) : (x < (T)(0) ? (T)(-1) : x); }                     \
    TK_FUNCTION T tk_rsqrt(T x) { return (T)(1) / sqrt(x); }
TK_FLOATS(TK_MATH)
TK_VECTORS_OF_FLOATS(TK_MATH)

/* Some drivers' functions of vectors of angles are good for small ones only: the scalar ones take the others. */
#define TK_SIN_LANE(number, lane) y.s##lane = sin(x.s##lane);
#define TK_COS_LANE(number, lane) y.s##lane = cos(x.s##lane);
#define TK_TAN_LANE(number, lane) y.s##lane = tan(x.s##lane);
#define TK_ANGLE(V, n, name, LANE)                                                                              \
    TK_FUNCTION V tk_##name(V x) {                                                                              \
        if (all(fabs(x) < (V)(0x1p13f))) return name(x);                                                        \
        V y;                                                                                                    \
        TK_LANES_##n(LANE) return y;                                                                            \
    }
#define TK_ANGLES(V, n) \
    TK_ANGLE(V, n, sin, TK_SIN_LANE) TK_ANGLE(V, n, cos, TK_COS_LANE) TK_ANGLE(V, n, tan, TK_TAN_LANE)
#define TK_ANGLES_OF_TYPE(T, I, U)                                                                              \
    TK_FUNCTION T tk_sin(T x) { return sin(x); }                                                                \
    TK_FUNCTION T tk_cos(T x) { return cos(x); }                                                                \
    TK_FUNCTION T tk_tan(T x) { return tan(x); }                                                                \
    TK_ANGLES(T##2, 2) TK_ANGLES(T##4, 4) TK_ANGLES(T##8, 8) TK_ANGLES(T##16, 16)
TK_FLOATS(TK_ANGLES_OF_TYPE)

#define TK_MATH_SIGNED(T, I, U)                                                                                 \
    TK_FUNCTION T tk_abs(T x) { return x < (T)(0) ? (T)(0) - x : x; }                                           \
    TK_FUNCTION T tk_sign(T x) { return x > (T)(0) ? (T)(1) : (x < (T)(0) ? (T)(-1) : x); }
TK_SIGNED(TK_MATH_SIGNED)
TK_VECTORS_OF_SIGNED(TK_MATH_SIGNED)
#define TK_MATH_UNSIGNED(T, I, U)                                                                               \
    TK_FUNCTION T tk_abs(T x) { return x; }                                                                     \
    TK_FUNCTION T tk_sign(T x) { return x > (T)(0) ? (T)(1) : (T)(0); }
TK_UNSIGNED(TK_MATH_UNSIGNED)
TK_VECTORS_OF_UNSIGNED(TK_MATH_UNSIGNED)

/* Tests: bool for a scalar, 0 or -1 in each lane for a vector. */
#define TK_TESTS(T, I)                                                                                          \
    TK_FUNCTION I tk_isnan(T x) { return x != x; }                                                              \
    TK_FUNCTION I tk_isfinite(T x) { return x - x == x - x; }                                                   \
    TK_FUNCTION I tk_isinf(T x) { return (x == x) & (x - x != x - x); }
#define TK_TESTS_OF_VECTOR(T, I, U) TK_TESTS(T, I)
TK_TESTS(float, bool)
TK_IF_F64(TK_TESTS(double, bool))
TK_VECTORS_OF_FLOATS(TK_TESTS_OF_VECTOR)

/* ---------------------------------------------------------------- narrow floats: integers in memory, f32 in registers
 *
 * Widening is exact. Narrowing rounds to nearest, ties to even; what is too big becomes infinity, or NaN in
 * f8e4m3, which has no infinity. A format: its bits, those of the mantissa, the bias of the exponent, the code
 * of infinity (or of the only NaN), and whether that is an infinity. */

#define TK_NARROW_FLOAT(name, code, n, bits, mantissa, bias, special, infinite)                                    \
    TK_FUNCTION float##n tk_##name##_to_f32(code##n codes) {                                                       \
        const uint##n wide = convert_uint##n(codes), sign = (wide >> (uint##n)(bits - 1)) << (uint##n)(31);        \
        const uint##n size = wide & (uint##n)((1u << (bits - 1)) - 1);                                             \
        /* As a float the shifted bits are too small by a power of two, subnormal ones too. */                     \
        const uint##n moved = size << (uint##n)(23 - mantissa);                                                    \
        const float##n value = as_float##n(moved) * (float##n)(0x1p127f) * (float##n)(1.0f / (1 << bias));         \
        const uint##n other = infinite ? moved | (uint##n)(0x7f800000u) : (uint##n)(0x7fc00000u);                  \
        return as_float##n((size < (uint##n)(special) ? as_uint##n(value) : other) | sign);                        \
    }                                                                                                              \
    TK_FUNCTION code##n tk_f32_to_##name(float##n x) {                                                             \
        const int shift = 23 - mantissa;                                                                           \
        const uint##n wide = as_uint##n(x), sign = (wide >> (uint##n)(31)) << (uint##n)(bits - 1);                 \
        const uint##n size = wide & (uint##n)(0x7fffffffu);                                                        \
        /* Normal numbers: change the bias, and round by adding half of the last place, less one where that is     \
         * even. Subnormal ones: the floating-point unit rounds when it adds a number whose last place is there. */ \
        const uint##n odd = (size >> (uint##n)(shift)) & (uint##n)(1u);                                            \
        const uint##n half_less = (uint##n)((1u << (shift - 1)) - 1);                                              \
        const uint##n normal =                                                                                     \
            (size - (uint##n)((uint)(127 - bias) << 23) + odd + half_less) >> (uint##n)(shift);                    \
        const uint##n anchor = (uint##n)((uint)(127 + 1 - bias + shift) << 23);                                    \
        const uint##n subnormal = as_uint##n(as_float##n(size) + as_float##n(anchor)) - anchor;                    \
        const uint##n found = size >= (uint##n)((uint)(127 + 1 - bias) << 23) ? normal : subnormal;                \
        const uint##n none = (uint##n)(infinite ? special | 1u << (mantissa - 1) : special);                       \
        const uint##n bounded =                                                                                    \
            size >= (uint##n)(0x7f800000u) ? (uint##n)(special) : min(found, (uint##n)(special));                  \
        return convert_##code##n((size > (uint##n)(0x7f800000u) ? none : bounded) | sign);                         \
    }
#define TK_BRAIN_FLOAT(n)                                                                                          \
    TK_FUNCTION float##n tk_bf16_to_f32(ushort##n codes) {                                                         \
        return as_float##n(convert_uint##n(codes) << (uint##n)(16));                                               \
    }                                                                                                              \
    TK_FUNCTION ushort##n tk_f32_to_bf16(float##n x) {                                                             \
        const uint##n bits = as_uint##n(x), top = bits >> (uint##n)(16);                                           \
        const uint##n rounded = (bits + (top & (uint##n)(1u)) + (uint##n)(0x7fffu)) >> (uint##n)(16);              \
        return convert_ushort##n(x == x ? rounded : top | (uint##n)(0x40u));                                       \
    }
#define TK_NARROW_FLOATS(n)                                         \
    TK_NARROW_FLOAT(f16, ushort, n, 16, 10, 15, 0x7c00u, 1)         \
    TK_NARROW_FLOAT(f8e4m3, uchar, n, 8, 3, 7, 0x7fu, 0)            \
    TK_NARROW_FLOAT(f8e5m2, uchar, n, 8, 2, 15, 0x7cu, 1)           \
    TK_BRAIN_FLOAT(n)
TK_NARROW_FLOATS()
TK_NARROW_FLOATS(2)
TK_NARROW_FLOATS(4)
TK_NARROW_FLOATS(8)
TK_NARROW_FLOATS(16)

/* ---------------------------------------------------------------- atomic updates
 *
 * OpenCL 1.2 has them for 32-bit integers; for f32 the new value is put there when nothing came in between. */

#define TK_ATOMICS(space)                                                                                          \
    TK_FUNCTION void tk_atomic_add(volatile space int *at, int value) { atomic_add(at, value); }                   \
    TK_FUNCTION void tk_atomic_min(volatile space int *at, int value) { atomic_min(at, value); }                   \
    TK_FUNCTION void tk_atomic_max(volatile space int *at, int value) { atomic_max(at, value); }                   \
    TK_FUNCTION void tk_atomic_add(volatile space uint *at, uint value) { atomic_add(at, value); }                 \
    TK_FUNCTION void tk_atomic_min(volatile space uint *at, uint value) { atomic_min(at, value); }                 \
    TK_FUNCTION void tk_atomic_max(volatile space uint *at, uint value) { atomic_max(at, value); }                 \
    TK_ATOMIC_FLOAT(space, add, old + value)                                                                       \
    TK_ATOMIC_FLOAT(space, mul, old * value)                                                                       \
    TK_ATOMIC_FLOAT(space, min, tk_min_float(old, value))                                                          \
    TK_ATOMIC_FLOAT(space, max, tk_max_float(old, value))
#define TK_ATOMIC_FLOAT(space, name, updated)                                                                      \
    TK_FUNCTION void tk_atomic_##name(volatile space float *at, float value) {                                     \
        volatile space uint *bits = (volatile space uint *)at;                                                     \
        uint seen = *bits, before;                                                                                 \
        do {                                                                                                       \
            before = seen;                                                                                         \
            const float old = as_float(before);                                                                    \
            seen = atomic_cmpxchg(bits, before, as_uint(updated));                                                 \
        } while (seen != before);                                                                                  \
    }
TK_ATOMICS(__global)
TK_ATOMICS(__local)

#endif /* TK_OPENCL_H */
