/* The words of CUDA and HIP for a host's C++ compiler: included in front of the text of generated kernels, it turns
 * each of them into a function that the emulator (launch.cpp) calls once per thread of a grid.
 *
 * Threads of a block are fibers of one host thread, so memory that a block shares is thread_local. Kernels are compiled
 * with -fsanitize=thread,alignment,bounds, whose calls the emulator answers itself (checks.cpp).
 * TK_SUBGROUP, the lanes of a sub-group, and TK_EMU_CHECKED (0 or 1) are defined on the command line.
 */
#ifndef TK_EMULATOR_H
#define TK_EMULATOR_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#define TK_EMULATOR 1

/* ---------------------------------------------------------------- what the emulator provides */

struct tk_emu_uint3 {
  unsigned int x, y, z;
};

enum tk_emu_lanes { TK_EMU_FROM, TK_EMU_UP, TK_EMU_DOWN, TK_EMU_XOR }; /* whose value a shuffle takes */

extern "C" {
tk_emu_uint3 tk_emu_thread_index() __attribute__((const)); /* the same for a thread from its start to its end */
tk_emu_uint3 tk_emu_block_index() __attribute__((const));
tk_emu_uint3 tk_emu_block_size() __attribute__((const));
tk_emu_uint3 tk_emu_grid_size() __attribute__((const));
void tk_emu_barrier(int line);
void tk_emu_cluster_barrier(int line);
void *tk_emu_in_block(void *own, int rank); /* of the cluster */
void tk_emu_subgroup_barrier(uint64_t lanes, int line);
uint64_t tk_emu_shuffle(tk_emu_lanes from, uint64_t bits, int lane, int width, uint64_t lanes, int line);
/* The values of several lanes of a whole sub-group at once. */
void tk_emu_gather(uint64_t bits, const int *lanes, uint64_t *values, int count, int line);
uint64_t tk_emu_ballot(int vote, uint64_t lanes, int line);
void tk_emu_aligned(const void *at, int bytes); /* checks it */
uint64_t tk_emu_atomic_read(const void *at, int bytes);
uint64_t tk_emu_atomic_swap(void *at, uint64_t expected, uint64_t wanted, int bytes); /* what was there */
void tk_emu_fence();
uint32_t tk_emu_come(uint32_t *counter, uint32_t most); /* up to there, then from zero again; what was there */
void tk_emu_async_copy(void *shared, const void *global, int bytes);  /* null: zeros */
void tk_emu_async_commit();
void tk_emu_async_wait(int pending);
/* One operation of a whole sub-group, done once when every lane has come: `perform` gets the operands of all lanes,
 * which it alone reads and writes. */
void tk_emu_together(void (*perform)(void *const *const *operands), void *const *operands, int line);
void tk_emu_lanes_differ(int row, int column); /* within such an operation: they hold different values of an element */
}

/* A kernel of this library; `sizes` are its parameters with their elements: "b0[64] b2[16]"; `cluster`: so many blocks
 * along z form one, 1 where they form none. */
struct tk_emu_kernel {
  const char *name;
  void (*call)(void (*function)(), void *const *args);
  void (*function)();
  int n_params;
  const int *element_bytes;
  const bool *constant;
  const char *sizes;
  int cluster;
  int subgroup;
  bool checked;
  tk_emu_kernel *next;
};
extern tk_emu_kernel *tk_emu_kernels;

/* ---------------------------------------------------------------- registration */

/* The emulator's own work, whose accesses nobody looks after. */
#define TK_EMU_OWN __attribute__((no_sanitize("thread"), no_sanitize("alignment"), no_sanitize("bounds")))

template <int... n> struct tk_emu_numbers {};
template <int count, int... n> struct tk_emu_count : tk_emu_count<count - 1, count - 1, n...> {};
template <int... n> struct tk_emu_count<0, n...> { typedef tk_emu_numbers<n...> type; };

template <class T> constexpr bool tk_emu_is_const = false;
template <class T> constexpr bool tk_emu_is_const<const T> = true;

/* P: what the parameters point to. */
template <class... P> struct tk_emu_signature {
  static constexpr int element_bytes[sizeof...(P) + 1] = {(int)sizeof(P)..., 0};
  static constexpr bool constant[sizeof...(P) + 1] = {tk_emu_is_const<P>..., true};
  template <int... n>
  TK_EMU_OWN static void pass(void (*function)(), void *const *args, tk_emu_numbers<n...>) {
    (void)args;
    ((void (*)(P *...))function)((P *)args[n]...);
  }
  TK_EMU_OWN static void call(void (*function)(), void *const *args) {
    pass(function, args, typename tk_emu_count<sizeof...(P)>::type());
  }
};

struct tk_emu_registration {
  tk_emu_kernel kernel;
  template <class... P>
  TK_EMU_OWN tk_emu_registration(const char *name, void (*function)(P *...),
                                                             const char *sizes, int cluster) {
    kernel = {name, tk_emu_signature<P...>::call, (void (*)())function, (int)sizeof...(P),
              tk_emu_signature<P...>::element_bytes, tk_emu_signature<P...>::constant, sizes, cluster, TK_SUBGROUP,
              TK_EMU_CHECKED, tk_emu_kernels};
    tk_emu_kernels = &kernel;
  }
};
#define TK_EMULATED(name, sizes, cluster) \
  static tk_emu_registration tk_emu_registered_##name(#name, name, sizes, cluster);

/* ---------------------------------------------------------------- marks and places */

#define __global__
#define __device__
#define __host__
#define __constant__ static const
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __cluster_dims__(...) /* TK_EMULATED says it */
#ifndef __restrict__
#define __restrict__ __restrict
#endif

/* An array in front of each shared one keeps them apart, so that running over one's end does not reach the next. */
#define TK_EMU_JOIN_(a, b) a##b
#define TK_EMU_JOIN(a, b) TK_EMU_JOIN_(a, b)
#define __shared__                                                                                            \
  static thread_local unsigned char TK_EMU_JOIN(tk_emu_gap, __COUNTER__)[512] __attribute__((aligned(128), used)); \
  static thread_local __attribute__((aligned(128), used))

#define threadIdx tk_emu_thread_index()
#define blockIdx tk_emu_block_index()
#define blockDim tk_emu_block_size()
#define gridDim tk_emu_grid_size()
#define warpSize TK_SUBGROUP

#define TK_CHECK_ALIGNED(place, bytes) tk_emu_aligned(place, bytes)

/* ---------------------------------------------------------------- barriers; a place is told by its line */

static inline void __syncthreads(int line = __builtin_LINE()) { tk_emu_barrier(line); }
static inline void __syncwarp(uint64_t lanes = ~(uint64_t)0, int line = __builtin_LINE()) {
  tk_emu_subgroup_barrier(lanes, line);
}
static inline void __threadfence() { tk_emu_fence(); }
static inline void __threadfence_block() {}
/* HIP has no function for it: what generated kernels say. In CUDA they say __syncwarp(). */
#define TK_SUBGROUP_BARRIER() __syncwarp()

/* ---------------------------------------------------------------- sub-groups */

template <class T> static inline uint64_t tk_emu_bits(T value) {
  static_assert(sizeof(T) <= 8, "a shuffle moves 8 bytes at most");
  uint64_t bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  return bits;
}
template <class T> static inline T tk_emu_value(uint64_t bits) {
  T value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

#define TK_EMU_SHUFFLE(name, from)                                                                             \
  template <class T>                                                                                           \
  static inline T __shfl##name##_sync(uint64_t lanes, T value, int lane, int width = TK_SUBGROUP,              \
                                      int line = __builtin_LINE()) {                                           \
    return tk_emu_value<T>(tk_emu_shuffle(from, tk_emu_bits(value), lane, width, lanes, line));                \
  }                                                                                                            \
  template <class T>                                                                                           \
  static inline T __shfl##name(T value, int lane, int width = TK_SUBGROUP, int line = __builtin_LINE()) {      \
    return tk_emu_value<T>(tk_emu_shuffle(from, tk_emu_bits(value), lane, width, ~(uint64_t)0, line));         \
  }
TK_EMU_SHUFFLE(, TK_EMU_FROM)
TK_EMU_SHUFFLE(_up, TK_EMU_UP)
TK_EMU_SHUFFLE(_down, TK_EMU_DOWN)
TK_EMU_SHUFFLE(_xor, TK_EMU_XOR)

static inline unsigned int __ballot_sync(uint64_t lanes, int vote, int line = __builtin_LINE()) {
  return (unsigned int)tk_emu_ballot(vote, lanes, line);
}
static inline int __any_sync(uint64_t lanes, int vote, int line = __builtin_LINE()) {
  return tk_emu_ballot(vote, lanes, line) != 0;
}
static inline int __all_sync(uint64_t lanes, int vote, int line = __builtin_LINE()) {
  return tk_emu_ballot(!vote, lanes, line) == 0;
}
static inline unsigned long long __ballot(int vote, int line = __builtin_LINE()) {
  return tk_emu_ballot(vote, ~(uint64_t)0, line);
}
static inline int __any(int vote, int line = __builtin_LINE()) { return tk_emu_ballot(vote, ~(uint64_t)0, line) != 0; }
static inline int __all(int vote, int line = __builtin_LINE()) { return tk_emu_ballot(!vote, ~(uint64_t)0, line) == 0; }

/* ---------------------------------------------------------------- atomics: of 4 and 8 bytes */

template <class T, class F> static inline T tk_emu_update(T *at, F combined) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "no atomics on elements of one or two bytes");
  uint64_t seen = tk_emu_atomic_read(at, sizeof(T)), expected;
  do {
    expected = seen;
    seen = tk_emu_atomic_swap(at, expected, tk_emu_bits<T>((T)combined(tk_emu_value<T>(expected))), sizeof(T));
  } while (seen != expected);
  return tk_emu_value<T>(seen);
}
#define TK_EMU_ATOMIC(name, combination)                                                       \
  template <class T> static inline T atomic##name(T *at, T value) {                            \
    return tk_emu_update(at, [=](T old) { return (combination); });                            \
  }
TK_EMU_ATOMIC(Add, old + value)
TK_EMU_ATOMIC(Sub, old - value)
TK_EMU_ATOMIC(Max, old > value ? old : value)
TK_EMU_ATOMIC(Min, old < value ? old : value)
TK_EMU_ATOMIC(And, old & value)
TK_EMU_ATOMIC(Or, old | value)
TK_EMU_ATOMIC(Xor, old ^ value)
TK_EMU_ATOMIC(Exch, (old, value))
static inline unsigned int atomicInc(unsigned int *at, unsigned int most) { return tk_emu_come(at, most); }
template <class T> static inline T atomicCAS(T *at, T expected, T wanted) {
  return tk_emu_value<T>(tk_emu_atomic_swap(at, tk_emu_bits(expected), tk_emu_bits(wanted), sizeof(T)));
}

/* ---------------------------------------------------------------- matrix units */

/* What a lane holds of a tile, put where it belongs; `seen`: which elements other lanes have brought. */
template <class U, int rows> struct tk_emu_tile {
  typename U::total at[rows][U::steps];
  bool seen[rows][U::steps];
  TK_EMU_OWN void put(int row, int column, typename U::element value) {
    const typename U::total wide = U::factor(value);
    if (seen[row][column] && memcmp(&wide, &at[row][column], sizeof wide) != 0) tk_emu_lanes_differ(row, column);
    at[row][column] = wide;
    seen[row][column] = true;
  }
};

/* c += a @ b by an instruction whose record is U: tiles are put together from what all lanes hold. */
template <class U, class V>
static inline typename U::totals tk_emu_matrix(typename U::totals c, const V *a, const V *b, int line) {
  void *const operands[] = {&c, (void *)a, (void *)b};
  tk_emu_together(
      [](void *const *const *lanes) TK_EMU_OWN {
        tk_emu_tile<U, U::rows> x = {};
        tk_emu_tile<U, U::columns> y = {};
        for (int n = 0; n < U::lanes; n++) {
          for (int i = 0; i < U::held_a; i++)
            x.put(U::a_row(n, i), U::a_column(n, i), ((const typename U::element *)lanes[n][1])[i]);
          for (int i = 0; i < U::held_b; i++)
            y.put(U::b_row(n, i), U::b_column(n, i), ((const typename U::element *)lanes[n][2])[i]);
        }
        for (int n = 0; n < U::lanes; n++)
          for (int i = 0; i < U::held_c; i++) {
            typename U::total sum = ((const typename U::total *)lanes[n][0])[i];
            for (int k = 0; k < U::steps; k++) sum += x.at[U::c_row(n, i)][k] * y.at[U::c_column(n, i)][k];
            ((typename U::total *)lanes[n][0])[i] = sum;
          }
      },
      operands, line);
  return c;
}

/* ---------------------------------------------------------------- vectors and functions that kernels by hand use */

#define TK_EMU_VECTORS(T, name)                        \
  struct alignas(2 * sizeof(T)) name##2 { T x, y; };   \
  struct alignas(4 * sizeof(T)) name##4 { T x, y, z, w; };
TK_EMU_VECTORS(float, float)
TK_EMU_VECTORS(int, int)
TK_EMU_VECTORS(unsigned int, uint)

static inline float __fdividef(float a, float b) { return a / b; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
template <class T> static inline T __ldg(const T *at) { return *at; }

#endif /* TK_EMULATOR_H */
