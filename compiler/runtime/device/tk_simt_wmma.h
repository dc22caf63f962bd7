/* Products of a sub-group on opaque fragments (CUDA, sm_70 and later); stands in front of kernels that call them.
 * A fragment of a or b is 16 f16, of c 8 f32, in memory of the thread's own; strides are in elements. bt is b whose
 * memory lies by columns: on sm_70 lanes then hold other elements than of b by rows. */
TK_INLINE void tk_wmma_fill(float *c, float value) { TK_EACH(8) c[i] = value; }

#if defined(__CUDA_ARCH__)
#define TK_WMMA_LOAD(name, part, order)                                                                     \
    TK_INLINE void tk_wmma_load_##name(uint16_t *to, const uint16_t *from, int stride) {                    \
        uint32_t *r = (uint32_t *)to;                                                                       \
        asm volatile("wmma.load." #part ".sync.aligned." #order                                             \
                     ".m16n16k16.f16 {%0,%1,%2,%3,%4,%5,%6,%7}, [%8], %9;"                                  \
                     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]), "=r"(r[4]), "=r"(r[5]), "=r"(r[6]),  \
                       "=r"(r[7])                                                                           \
                     : "l"(from), "r"(stride)                                                               \
                     : "memory");                                                                           \
    }
TK_WMMA_LOAD(a, a, row)
TK_WMMA_LOAD(b, b, row)
TK_WMMA_LOAD(bt, b, col)
TK_INLINE void tk_wmma_store(float *to, const float *c, int stride) {
    asm volatile("wmma.store.d.sync.aligned.row.m16n16k16.f32 [%0], {%1,%2,%3,%4,%5,%6,%7,%8}, %9;" ::"l"(to),
                 "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]), "f"(c[4]), "f"(c[5]), "f"(c[6]), "f"(c[7]), "r"(stride)
                 : "memory");
}
#define TK_WMMA_MMA(name, order)                                                                                \
    TK_INLINE void tk_wmma_##name(float *c, const uint16_t *a, const uint16_t *b) {                             \
        const uint32_t *x = (const uint32_t *)a, *y = (const uint32_t *)b;                                      \
        asm("wmma.mma.sync.aligned.row." #order ".m16n16k16.f32.f32 {%0,%1,%2,%3,%4,%5,%6,%7}, "                \
            "{%8,%9,%10,%11,%12,%13,%14,%15}, {%16,%17,%18,%19,%20,%21,%22,%23}, {%0,%1,%2,%3,%4,%5,%6,%7};"    \
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3]), "+f"(c[4]), "+f"(c[5]), "+f"(c[6]), "+f"(c[7])    \
            : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]), "r"(x[6]), "r"(x[7]),           \
              "r"(y[0]), "r"(y[1]), "r"(y[2]), "r"(y[3]), "r"(y[4]), "r"(y[5]), "r"(y[6]), "r"(y[7]));          \
    }
TK_WMMA_MMA(mma, row)
TK_WMMA_MMA(mma_bt, col)
#elif defined(TK_EMULATOR)
TK_INLINE void tk_wmma_load_a(uint16_t *to, const uint16_t *from, int stride) {
    typedef tk_wmma_m16n16k16_record tile;
    const int lane = (int)threadIdx.x % 32;
    TK_EACH(16) to[i] = from[tile::a_row(lane, i) * stride + tile::a_column(lane, i)];
}
TK_INLINE void tk_wmma_load_b(uint16_t *to, const uint16_t *from, int stride) {
    typedef tk_wmma_m16n16k16_record tile;
    const int lane = (int)threadIdx.x % 32;
    TK_EACH(16) to[i] = from[tile::b_column(lane, i) * stride + tile::b_row(lane, i)];
}
TK_INLINE void tk_wmma_load_bt(uint16_t *to, const uint16_t *from, int stride) {
    typedef tk_wmma_m16n16k16_record tile;
    const int lane = (int)threadIdx.x % 32;
    TK_EACH(16) to[i] = from[tile::b_row(lane, i) * stride + tile::b_column(lane, i)];
}
TK_INLINE void tk_wmma_store(float *to, const float *c, int stride) {
    typedef tk_wmma_m16n16k16_record tile;
    const int lane = (int)threadIdx.x % 32;
    TK_EACH(8) to[tile::c_row(lane, i) * stride + tile::c_column(lane, i)] = c[i];
}
TK_INLINE void tk_wmma_mma(float *c, const uint16_t *a, const uint16_t *b, int line = __builtin_LINE()) {
    tk_f32x8 sums;
    TK_EACH(8) sums.at[i] = c[i];
    sums = tk_emu_matrix<tk_wmma_m16n16k16_record>(sums, a, b, line);
    TK_EACH(8) c[i] = sums.at[i];
}
TK_INLINE void tk_wmma_mma_bt(float *c, const uint16_t *a, const uint16_t *b, int line = __builtin_LINE()) {
    tk_wmma_mma(c, a, b, line);
}
#endif
