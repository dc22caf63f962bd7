/* What threads do together in CUDA and HIP kernels, and what single instructions do; see tk_simt.h, which stands in
 * front. */
#ifndef TK_SIMT_THREADS_H
#define TK_SIMT_THREADS_H

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

/* ---------------------------------------------------------------- the last of several blocks */

/* Whether this block is the last of `blocks` to come to a counter, which is zero before and after: it sees what the
 * others wrote before they came. All threads of the block come (CUDA C++ Programming Guide, "Memory Fence Functions"):
 * each lets the device see what it wrote, behind the barrier one counts the block, which starts from zero again at the
 * last one; and behind that, each gives up what its unit keeps of memory from before. `told`: shared memory. */
TK_INLINE bool tk_last_block(unsigned int *counter, int blocks, unsigned int *told) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0)
        *told = atomicInc(counter, (unsigned int)blocks - 1);
    __syncthreads();
    if (*told != (unsigned int)blocks - 1) return false;
    __threadfence();
    return true;
}

/* What lies at `at`, of 2, 4, 8 or 16 bytes, in the memory that begins at `base`, the same for all threads, where `holds`;
 * else zeros. Threads of AMD's devices would part for a condition, so that each load is waited for by itself: loads from a
 * buffer give zeros beyond its end instead (LLVM: User Guide for AMDGPU Backend, buffer resources). */
#if defined(TK_IS_HIP) && (defined(__GFX9__) || defined(TK_EMULATOR))
#ifndef TK_EMULATOR
typedef int tk_buffer_resource __attribute__((ext_vector_type(4)));
typedef float tk_buffer_2 __attribute__((ext_vector_type(2)));
typedef float tk_buffer_4 __attribute__((ext_vector_type(4)));
__device__ short tk_buffer_load_2(tk_buffer_resource, int, int, int) __asm("llvm.amdgcn.raw.buffer.load.i16");
__device__ float tk_buffer_load_4(tk_buffer_resource, int, int, int) __asm("llvm.amdgcn.raw.buffer.load.f32");
__device__ tk_buffer_2 tk_buffer_load_8(tk_buffer_resource, int, int, int) __asm("llvm.amdgcn.raw.buffer.load.v2f32");
__device__ tk_buffer_4 tk_buffer_load_16(tk_buffer_resource, int, int, int) __asm("llvm.amdgcn.raw.buffer.load.v4f32");
template <class V> TK_INLINE V tk_buffer_load(const void *base, int place) {
    const unsigned long long begin = (unsigned long long)base;
    const tk_buffer_resource all = {(int)begin, (int)(begin >> 32 & 0xffff), 0x7fffffff, 0x27000};
    if constexpr (sizeof(V) == 2) return tk_bitcast<V>(tk_buffer_load_2(all, place, 0, 0));
    else if constexpr (sizeof(V) == 4) return tk_bitcast<V>(tk_buffer_load_4(all, place, 0, 0));
    else if constexpr (sizeof(V) == 8) return tk_bitcast<V>(tk_buffer_load_8(all, place, 0, 0));
    else return tk_bitcast<V>(tk_buffer_load_16(all, place, 0, 0));
}
#else
template <class V> TK_INLINE V tk_buffer_load(const void *base, int place) {
    if ((unsigned int)place >= 0x7fffffffu) return V{};
    return *(const V *)((const char *)base + (unsigned int)place);
}
#endif
template <class V> TK_INLINE V tk_load_or_zero(const void *base, const void *at, bool holds) {
    const int offset = (int)((const char *)at - (const char *)base);
    return tk_buffer_load<V>(base, holds ? offset : (int)0x80000000);
}
#else
template <class V> TK_INLINE V tk_load_or_zero(const void *, const void *at, bool holds) {
    return holds ? *(const V *)at : V{};
}
#endif

/* Of a kernel of which a part of a unit (SIMD) has so many waves at a time: LLVM takes no notice where the least is
 * below those of one block. */
#if defined(TK_IS_HIP) && !defined(TK_EMULATOR)
#define TK_WAVES(least, most) __attribute__((amdgpu_waves_per_eu(least, most)))
#else
#define TK_WAVES(least, most)
#endif

/* ---------------------------------------------------------------- shared memory that a launch asks for */

/* An array at so many bytes of it. The emulator gives it memory of its own, so that running over its end shows. */
#if defined(TK_EMULATOR)
#define TK_SHARED_AT(type, name, size, offset) alignas(16) __shared__ type name[size]
#elif !defined(TK_IS_HIP)
extern __shared__ __align__(64) uint4 tk_shared[];
#define TK_SHARED_AT(type, name, size, offset) type *const name = (type *)((char *)tk_shared + (offset))
#endif

/* ---------------------------------------------------------------- launches that overlap */

/* Programmatic dependent launch (PTX ISA, griddepcontrol): blocks may come when those of the launch before end, and wait
 * here until it is done and what it wrote can be seen. Every kernel says so, in front of the first use of what launches
 * write: a launch is then done only after all before it are, so waiting for one is enough. Blocks that come earlier
 * (launch_dependents) crowd the units that have room. */
TK_INLINE void tk_await_earlier() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/* ---------------------------------------------------------------- clusters of blocks */

/* A kernel with __cluster_dims__(1, 1, n) runs n neighbours along z at once, which may read each other's shared memory
 * (PTX ISA, barrier.cluster and mapa; from sm_90 on, other devices have nothing like it). What a block wrote, others see
 * behind a cluster barrier; none may end before another one's last read of it, which takes a barrier, too. */
#if !defined(TK_IS_HIP) && (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900)
#if defined(TK_EMULATOR)
TK_INLINE void tk_cluster_barrier(int line = __builtin_LINE()) { tk_emu_cluster_barrier(line); }
TK_INLINE void tk_cluster_end(int line = __builtin_LINE()) { tk_emu_cluster_barrier(line); }
#else
/* All threads of all blocks of the cluster meet. */
TK_INLINE void tk_cluster_barrier() {
#if defined(__CUDA_ARCH__) /* nvcc's pass for the host runs no kernel */
    asm volatile("barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#endif
}
/* The same at the end, behind which nothing is to be seen: no fence. */
TK_INLINE void tk_cluster_end() {
#if defined(__CUDA_ARCH__)
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n\tbarrier.cluster.wait.aligned;" ::: "memory");
#endif
}
#endif
/* Where the block `rank` of the cluster has what `own` points to in this block's shared memory; to read from. */
template <class T> TK_INLINE T *tk_in_block(T *own, int rank) {
#if defined(TK_EMULATOR)
    return (T *)tk_emu_in_block((void *)own, rank);
#elif defined(__CUDA_ARCH__)
    T *there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(own), "r"(rank));
    return there;
#else
    (void)rank;
    return own;
#endif
}
#endif

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

/* The same where `holds`; else zeros, and nothing is read: the address may be any. */
template <int bytes> TK_INLINE void tk_async_copy_or_zero(void *shared, const void *global, bool holds) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "a copy moves 4, 8 or 16 bytes");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const unsigned int to = (unsigned int)__cvta_generic_to_shared(shared), size = holds ? bytes : 0;
    if constexpr (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(size) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(global), "n"(bytes), "r"(size) : "memory");
#elif defined(TK_EMULATOR)
    tk_emu_async_copy(shared, (const void *)((uintptr_t)global * holds), bytes); /* no branch there, none here */
#else
    typedef tk_vec<uint32_t, bytes / 4> word;
    *(word *)shared = holds ? *(const word *)global : word{};
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

/* ---------------------------------------------------------------- matrices of shared memory */

/* Of `count` matrices of eight rows of 16 bytes each the word that a lane holds: lanes 4 r to 4 r + 3 have those of row r.
 * `row`: where row lane % 8 of matrix lane / 8 begins. All lanes take part.
 * tk_load_columns: elements of 16 bits; lanes 4 c to 4 c + 3 have those of column c, two rows each. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 750
#define TK_LDMATRIX(name, order)                                                                                       \
    template <int count> TK_INLINE tk_vec<uint32_t, count> name(const void *row) {                                     \
        const unsigned int from = (unsigned int)__cvta_generic_to_shared(row);                                         \
        tk_vec<uint32_t, count> r;                                                                                     \
        if constexpr (count == 4)                                                                                      \
            asm volatile("ldmatrix.sync.aligned.m8n8.x4" order ".shared.b16 {%0, %1, %2, %3}, [%4];"                   \
                         : "=r"(r.at[0]), "=r"(r.at[1]), "=r"(r.at[2]), "=r"(r.at[3])                                  \
                         : "r"(from));                                                                                 \
        else if constexpr (count == 2)                                                                                 \
            asm volatile("ldmatrix.sync.aligned.m8n8.x2" order ".shared.b16 {%0, %1}, [%2];"                           \
                         : "=r"(r.at[0]), "=r"(r.at[1])                                                                \
                         : "r"(from));                                                                                 \
        else                                                                                                           \
            asm volatile("ldmatrix.sync.aligned.m8n8.x1" order ".shared.b16 {%0}, [%1];" : "=r"(r) : "r"(from));       \
        return r;                                                                                                      \
    }
TK_LDMATRIX(tk_load_matrices, "")
TK_LDMATRIX(tk_load_columns, ".trans")
#undef TK_LDMATRIX
#elif defined(TK_EMULATOR) || !defined(TK_IS_HIP)
/* What some lanes have as `row`, in order. */
template <int count>
TK_INLINE void tk_rows_of_lanes(const void *row, const int (&lanes)[count], uint64_t (&rows)[count], int line) {
#ifdef TK_EMULATOR
    tk_emu_gather((uint64_t)row, lanes, rows, count, line);
#else
    (void)line;
    for (int i = 0; i < count; i++) rows[i] = __shfl_sync(0xffffffffu, (unsigned long long)row, lanes[i]);
#endif
}
template <int count> TK_INLINE void tk_put_word(tk_vec<uint32_t, count> &r, int i, uint32_t word) {
    if constexpr (count == 1) r = word;
    else r.at[i] = word;
}
template <int count>
TK_INLINE tk_vec<uint32_t, count> tk_load_matrices(const void *row, int line = __builtin_LINE()) {
    const int lane = (int)(threadIdx.x % 32);
    int lanes[count];
    uint64_t rows[count];
    for (int i = 0; i < count; i++) lanes[i] = 8 * i + lane / 4;
    tk_rows_of_lanes(row, lanes, rows, line);
    tk_vec<uint32_t, count> r;
    for (int i = 0; i < count; i++) tk_put_word<count>(r, i, ((const uint32_t *)rows[i])[lane % 4]);
    return r;
}
template <int count>
TK_INLINE tk_vec<uint32_t, count> tk_load_columns(const void *row, int line = __builtin_LINE()) {
    const int lane = (int)(threadIdx.x % 32);
    int lanes[2 * count];
    uint64_t rows[2 * count];
    for (int i = 0; i < 2 * count; i++) lanes[i] = 8 * (i / 2) + 2 * (lane % 4) + i % 2;
    tk_rows_of_lanes(row, lanes, rows, line);
    tk_vec<uint32_t, count> r;
    for (int i = 0; i < count; i++) {
        const uint32_t first = ((const uint16_t *)rows[2 * i])[lane / 4];
        const uint32_t second = ((const uint16_t *)rows[2 * i + 1])[lane / 4];
        tk_put_word<count>(r, i, first | second << 16);
    }
    return r;
}
#endif

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

/* The same, with the bytes of both factors in memory, each at a multiple of four. */
TK_INLINE int32_t tk_dp4a_i8(const int8_t *a, const int8_t *b, int32_t c) {
    return tk_dp4a(*(const int32_t *)a, *(const int32_t *)b, c);
}

#endif /* TK_SIMT_THREADS_H */
