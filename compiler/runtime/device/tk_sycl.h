/* What stands before the kernels of a model in SYCL. The same text is built in two ways:
 *
 *   at load time   by the runtime's kernel compiler: kernels are free functions, and only those headers are
 *                  read that are needed (0.4 s for a model instead of 1.8 s with <sycl/sycl.hpp>)
 *   ahead of time  by DPC++ (clang++ -fsycl ... -DTK_AHEAD): kernels are functions called by named lambdas,
 *                  which the launchers written behind this text define
 *
 * Written before it: TK_MODEL, digits that make names of kernels unique in a process, and for GPUs TK_SUBGROUP,
 * the lanes of a sub-group. The x axis of grid and block is the fastest dimension, 2.
 *
 * SYCL 2020, 4.9.1 and 5.8; the extensions sycl_ext_oneapi_free_function_kernels and work_group_static.
 */
#ifndef TK_SYCL_H
#define TK_SYCL_H

#if defined(TK_AHEAD)
#include <sycl/sycl.hpp>
#else
#include <sycl/ext/oneapi/free_function_queries.hpp>
#include <sycl/ext/oneapi/kernel_properties/properties.hpp>
#include <sycl/ext/oneapi/free_function_kernel_properties.hpp>
#include <sycl/ext/oneapi/work_group_static.hpp>
#if defined(TK_SUBGROUP)
#include <sycl/atomic_ref.hpp>
#include <sycl/group_algorithm.hpp>
#include <sycl/group_barrier.hpp>
#endif
#endif

/* The headers of processors' kernels are made for vectors in general; their x86 instructions stay out. */
#define TK_NO_ASSEMBLY 1
#include "tk_vector.h"
#include "tk_narrow.h"
#include "tk_math.h"
#include "tk_libm.h"
#include "tk_loops.h"

TK_CONTRACT

/* ---------------------------------------------------------------- kernels */

#if !defined(TK_MODEL)
#define TK_MODEL alone
#endif
#define TK_PASTE(a, b) a##_##b
#define TK_JOIN(a, b) TK_PASTE(a, b)
#define TK_NAME(name) TK_JOIN(name, TK_MODEL)

#if defined(TK_AHEAD)
#if defined(TK_SUBGROUP)
#define TK_LANES [[sycl::reqd_sub_group_size(TK_SUBGROUP)]]
#else
#define TK_LANES
#endif
/* TK_KERNEL(name, x, y, z, parameters ...): x * y * z work-items in a group. Launchers give the first two. */
#define TK_KERNEL(name, x, y, z, ...) \
    TK_INLINE void TK_NAME(name)(const sycl::nd_item<3> &tk_item, unsigned char *tk_shared, __VA_ARGS__)
#define TK_ITEM tk_item
/* An array of the work-group, from the memory that the launcher gave. */
#define TK_SHARED(T, name, n)            \
    T *const name = (T *)tk_shared;      \
    tk_shared += (sizeof(T) * (n) + 63) / 64 * 64
#else
namespace tk_properties = sycl::ext::oneapi::experimental;
#if defined(TK_SUBGROUP)
#define TK_LANES SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((tk_properties::sub_group_size<TK_SUBGROUP>))
#else
#define TK_LANES
#endif
#define TK_KERNEL(name, x, y, z, ...)                                                        \
    extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((tk_properties::nd_range_kernel<3>))        \
        SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((tk_properties::work_group_size<z, y, x>)) TK_LANES \
        void TK_NAME(name)(__VA_ARGS__)
#define TK_ITEM (sycl::ext::oneapi::this_work_item::get_nd_item<3>())
#if defined(TK_SUBGROUP)
#define TK_SHARED(T, name, n)                                \
    static tk_properties::work_group_static<T[n]> name##_at; \
    T *const name = (T(&)[n])name##_at
#else
/* A processor's work-group is one thread: its stack (8 MB by CL_CONFIG_STACK_DEFAULT_SIZE, and it grows) has more
 * room than the memory of a work-group, of which there are 256 KB. */
#define TK_SHARED(T, name, n) alignas(64) T name[n]
#endif
#endif

#define TK_GROUP_X TK_ITEM.get_group(2)
#define TK_GROUP_Y TK_ITEM.get_group(1)
#define TK_GROUP_Z TK_ITEM.get_group(0)
#define TK_GROUPS_X TK_ITEM.get_group_range(2)
#define TK_GROUPS_Y TK_ITEM.get_group_range(1)
#define TK_GROUPS_Z TK_ITEM.get_group_range(0)
#define TK_LOCAL_X TK_ITEM.get_local_id(2)
#define TK_LOCAL_Y TK_ITEM.get_local_id(1)
#define TK_LOCAL_Z TK_ITEM.get_local_id(0)

/* Vectors at a multiple of their length. */
template <class V> TK_INLINE V tk_load_aligned(const void *from) { return *(const V *)from; }
template <class V> TK_INLINE void tk_store_aligned(void *to, V v) { *(V *)to = v; }

/* ---------------------------------------------------------------- what threads do together */

#if defined(TK_SUBGROUP)

#define TK_BARRIER() sycl::group_barrier(TK_ITEM.get_group())
#define TK_SUBGROUP_BARRIER() sycl::group_barrier(TK_ITEM.get_sub_group())

template <class T> TK_INLINE auto tk_atomic(T *at) {
    return sycl::atomic_ref<T, sycl::memory_order::relaxed, sycl::memory_scope::device>(*at);
}
template <class T> TK_INLINE void tk_atomic_add(T *at, T value) { tk_atomic(at).fetch_add(value); }
template <class T> TK_INLINE void tk_atomic_sub(T *at, T value) { tk_atomic(at).fetch_sub(value); }
/* A NaN stays, as it does in tk_max and tk_min; other operators have no instruction either. */
#define TK_DECLARE_ATOMIC(name, combined)                                      \
    template <class T> TK_INLINE void tk_atomic_##name(T *at, T value) {       \
        auto place = tk_atomic(at);                                            \
        T old = place.load();                                                  \
        while (!place.compare_exchange_strong(old, (T)(combined))) continue;   \
    }
TK_DECLARE_ATOMIC(max, tk_max(old, value))
TK_DECLARE_ATOMIC(min, tk_min(old, value))
TK_DECLARE_ATOMIC(mul, old *value)

/* shuffle: the value of lane `lane`; xor: of lane own ^ lane; up, down: of lane own - lane, own + lane. The item
 * comes along, because only the kernel itself has it ahead of time. */
template <class T> TK_INLINE T tk_shuffle_by(const sycl::nd_item<3> &item, T v, int lane) {
    return sycl::select_from_group(item.get_sub_group(), v, lane);
}
template <class T> TK_INLINE T tk_shuffle_xor_by(const sycl::nd_item<3> &item, T v, int lane) {
    return sycl::permute_group_by_xor(item.get_sub_group(), v, lane);
}
template <class T> TK_INLINE T tk_shuffle_up_by(const sycl::nd_item<3> &item, T v, int lane) {
    return sycl::shift_group_right(item.get_sub_group(), v, lane);
}
template <class T> TK_INLINE T tk_shuffle_down_by(const sycl::nd_item<3> &item, T v, int lane) {
    return sycl::shift_group_left(item.get_sub_group(), v, lane);
}
#define tk_subgroup_shuffle(v, lane) tk_shuffle_by(TK_ITEM, v, lane)
#define tk_subgroup_shuffle_xor(v, lane) tk_shuffle_xor_by(TK_ITEM, v, lane)
#define tk_subgroup_shuffle_up(v, lane) tk_shuffle_up_by(TK_ITEM, v, lane)
#define tk_subgroup_shuffle_down(v, lane) tk_shuffle_down_by(TK_ITEM, v, lane)

/* All lanes combined, the result in each of them. */
#define TK_DECLARE_COMBINE(name, combined)                                                  \
    template <class T> TK_INLINE T tk_combine_##name(const sycl::nd_item<3> &item, T a) {   \
        for (int step = TK_SUBGROUP / 2; step > 0; step /= 2) {                             \
            const T b = tk_shuffle_xor_by(item, a, step);                                   \
            a = combined;                                                                   \
        }                                                                                   \
        return a;                                                                           \
    }
TK_DECLARE_COMBINE(add, a + b)
TK_DECLARE_COMBINE(mul, a *b)
TK_DECLARE_COMBINE(max, tk_max(a, b))
TK_DECLARE_COMBINE(min, tk_min(a, b))
#define tk_subgroup_add(v) tk_combine_add(TK_ITEM, v)
#define tk_subgroup_mul(v) tk_combine_mul(TK_ITEM, v)
#define tk_subgroup_max(v) tk_combine_max(TK_ITEM, v)
#define tk_subgroup_min(v) tk_combine_min(TK_ITEM, v)

#endif

#endif /* TK_SYCL_H */
