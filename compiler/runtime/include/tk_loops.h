/* What loops of kernels need beside vectors and functions, on processors and on devices: division of integers,
 * strided vectors, hints. */
#ifndef TK_LOOPS_H
#define TK_LOOPS_H

#include "tk_vector.h"

/* In front of a loop whose body was unrolled by hand around accumulators in registers. Unrolling it again
 * makes the compiler keep loaded values from one iteration for the next, and spill the accumulators. */
#if defined(__clang__)
#define TK_ROLLED _Pragma("clang loop unroll(disable)")
#elif defined(__GNUC__)
#define TK_ROLLED _Pragma("GCC unroll 1")
#else
#define TK_ROLLED
#endif

/* Quotient rounded towards zero, and the remainder that goes with it; for integers and their vectors. Nothing
 * traps, whatever the tensors hold, and zeros in lanes that are off are harmless: the quotient by zero is zero,
 * and that of the most negative number by -1 wraps around. */
template <class V> TK_INLINE V tk_truncdiv(V a, V b) {
    using S = tk_scalar<V>;
    const S none = (S)-1 < (S)0 ? (S)-1 : (S)0; /* no divisor of unsigned numbers is special but zero */
    if constexpr (tk_lanes<V> == 1) {
        if (b == 0 || b == none) return b == 0 ? 0 : (V)(0 - a);
        return a / b;
    } else {
        const auto zero = b == 0, minus = b == none;
        const V q = a / tk_select(zero | minus, V{} + 1, b);
        return tk_select(zero, V{}, tk_select(minus, V{} - a, q));
    }
}
template <class V> TK_INLINE V tk_truncmod(V a, V b) { return a - tk_truncdiv(a, b) * b; }

/* The same, rounded towards minus infinity. */
template <class V> TK_INLINE V tk_floordiv(V a, V b) {
    const V q = tk_truncdiv(a, b), r = a - q * b;
    if constexpr (tk_lanes<V> == 1) return q - ((r != 0) & ((r < 0) != (b < 0)));
    else return q + tk_convert<tk_scalar<V>>((r != 0) & ((r < 0) != (b < 0)));
}
template <class V> TK_INLINE V tk_floormod(V a, V b) { return a - tk_floordiv(a, b) * b; }

/* Asks for the memory at from[distance], which need not be part of anything, up to the second-level cache. SPIR-V has
 * no such hint for memory of unknown kind, but takes x86's instruction; GPUs have no use for it. With an unsigned
 * place g++ 12 keeps vectors of a loop beside it on the stack. */
template <class T> TK_INLINE void tk_prefetch(const T *from, int64_t distance) {
    const int64_t place = (int64_t)from + distance * (int64_t)sizeof(T);
#if defined(TK_SUBGROUP)
    (void)place;
#elif defined(TK_NO_ASSEMBLY)
    asm volatile("prefetcht1 (%0)" ::"r"(place));
#else
    __builtin_prefetch((const void *)place, 0, 2);
#endif
}

/* Lane i holds from[i * step]. */
template <class V> TK_INLINE V tk_load_strided(const tk_scalar<V> *from, int64_t step) {
    if constexpr (tk_lanes<V> == 1) {
        return *from;
    } else {
        V v = V{};
        for (int i = 0; i < tk_lanes<V>; i++) v[i] = from[i * step];
        return v;
    }
}

/* to[i * step] = lane i, in the order of the lanes; `T` is as wide as a lane, as bytes of bool are unsigned. */
template <class T, class V> TK_INLINE void tk_store_strided(T *to, int64_t step, V v) {
    static_assert(sizeof(T) == sizeof(tk_scalar<V>), "a lane of another size than what it is stored to");
    if constexpr (tk_lanes<V> == 1) {
        *to = (T)v;
    } else {
        for (int i = 0; i < tk_lanes<V>; i++) to[i * step] = (T)v[i];
    }
}

#endif /* TK_LOOPS_H */
