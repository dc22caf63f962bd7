/* Products of a sub-group on opaque fragments, by joint_matrix (the extension sycl_ext_oneapi_matrix as <sycl/sycl.hpp>
 * of 2023 and later has it); stands in front of kernels that call them. Strides are in elements, memory is by rows,
 * that of bt by columns of b.
 *
 * Fragments are objects of these types, handed on by pointer: after inlining they are values, never memory. */
#include <sycl/ext/oneapi/matrix/matrix.hpp>

namespace tk_matrix = sycl::ext::oneapi::experimental::matrix;

template <class T, int rows, int columns>
using tk_wmma_a =
    tk_matrix::joint_matrix<sycl::sub_group, T, tk_matrix::use::a, rows, columns, tk_matrix::layout::row_major>;
template <class T, int rows, int columns>
using tk_wmma_b =
    tk_matrix::joint_matrix<sycl::sub_group, T, tk_matrix::use::b, rows, columns, tk_matrix::layout::row_major>;
template <class T, int rows, int columns>
using tk_wmma_bt =
    tk_matrix::joint_matrix<sycl::sub_group, T, tk_matrix::use::b, rows, columns, tk_matrix::layout::col_major>;
template <class T, int rows, int columns>
using tk_wmma_c = tk_matrix::joint_matrix<sycl::sub_group, T, tk_matrix::use::accumulator, rows, columns>;

template <class T> TK_INLINE auto tk_wmma_at(T *at) {
    return sycl::address_space_cast<sycl::access::address_space::generic_space, sycl::access::decorated::no>(at);
}
template <class C> TK_INLINE void tk_wmma_fill_by(const sycl::nd_item<3> &item, C *c, float value) {
    tk_matrix::joint_matrix_fill(item.get_sub_group(), *c, value);
}
/* f16 and bf16 lie in memory as integers. */
template <class T, tk_matrix::use part, size_t rows, size_t columns, tk_matrix::layout order>
TK_INLINE void tk_wmma_load_by(const sycl::nd_item<3> &item,
                               tk_matrix::joint_matrix<sycl::sub_group, T, part, rows, columns, order> *to,
                               const uint16_t *from, int stride) {
    tk_matrix::joint_matrix_load(item.get_sub_group(), *to, tk_wmma_at((const T *)from), (size_t)stride);
}
template <class A, class B, class C>
TK_INLINE void tk_wmma_mma_by(const sycl::nd_item<3> &item, C *c, const A *a, const B *b) {
    tk_matrix::joint_matrix_mad(item.get_sub_group(), *c, *a, *b, *c);
}
template <class C>
TK_INLINE void tk_wmma_store_by(const sycl::nd_item<3> &item, float *to, const C *c, int stride) {
    tk_matrix::joint_matrix_store(item.get_sub_group(), *c, tk_wmma_at(to), (size_t)stride,
                                  tk_matrix::layout::row_major);
}
#define tk_wmma_fill(c, value) tk_wmma_fill_by(TK_ITEM, c, value)
#define tk_wmma_load_a(to, from, stride) tk_wmma_load_by(TK_ITEM, to, from, stride)
#define tk_wmma_load_b(to, from, stride) tk_wmma_load_by(TK_ITEM, to, from, stride)
#define tk_wmma_load_bt(to, from, stride) tk_wmma_load_by(TK_ITEM, to, from, stride)
#define tk_wmma_mma(c, a, b) tk_wmma_mma_by(TK_ITEM, c, a, b)
#define tk_wmma_mma_bt(c, a, b) tk_wmma_mma_by(TK_ITEM, c, a, b)
#define tk_wmma_store(to, c, stride) tk_wmma_store_by(TK_ITEM, to, c, stride)
