/* The contract between generated code and the runtime. C and C++.
 *
 * A generated model consists of kernels (tk_k0, tk_k1, ...) and of one table, `tk_plan_model`, that says
 * in which order they run and on which memory. It holds numbers only: no name of a model occurs in it.
 * The names of inputs and outputs, the manifest and the constants are data that the linking step puts
 * into the library (see tk_blobs.h); generated code never mentions them.
 */
#ifndef TK_PLAN_H
#define TK_PLAN_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Goes into tk_plan.version. Raised whenever this file changes in an incompatible way. */
#define TK_PLAN_VERSION 12

/* Everything the runtime hands out (arena, scratch, constants) is aligned to this many bytes. Buffers of
 * inputs and outputs come from the caller and are aligned to the size of one element only. */
#define TK_ALIGNMENT 64

/* Symbols of the plan and the kernels: global between the objects of one library, invisible outside. */
#if defined(__GNUC__)
#define TK_HIDDEN __attribute__((visibility("hidden")))
#else
#define TK_HIDDEN
#endif

/* One running inference: threads, scratch, values of symbolic dimensions. */
typedef struct tk_exec tk_exec;

/* A kernel: bufs[i] is the memory of the step's i-th argument. */
typedef void (*tk_kernel)(void *const *bufs, tk_exec *exec);

/* The body of a parallel loop over [begin, end), a non-empty part of [0, extent).
 *   bufs, env  passed through from tk_parallel unchanged (env: values of enclosing loop variables)
 *   scratch    plan.scratch_bytes of memory that no other running body and no kernel uses; its
 *              contents are undefined at each call
 *   tid        number of the executing thread, 0 <= tid < tk_threads(exec); 0 is the caller's
 * A thread may be given several ranges, one after the other; each index is given exactly once. */
typedef void (*tk_body)(void *const *bufs, const int64_t *env, int64_t begin, int64_t end,
                        unsigned char *scratch, int tid);

/* Runs body over [0, extent) and returns when all of it is done. Writes of the bodies are visible to the
 * caller afterwards. Does nothing when extent <= 0. Not to be called from inside a body. */
TK_HIDDEN void tk_parallel(tk_exec *exec, tk_body body, void *const *bufs, const int64_t *env, int64_t extent);

/* plan.scratch_bytes of memory for the kernel itself (code outside parallel bodies). It does not overlap
 * the scratch that bodies get, so it keeps its contents across tk_parallel within one kernel. */
TK_HIDDEN unsigned char *tk_scratch(tk_exec *exec);

/* Upper bound (exclusive) of tid. */
TK_HIDDEN int tk_threads(const tk_exec *exec);

/* Values of the plan's symbolic dimensions in this run, indexed as tk_plan.symbols. */
TK_HIDDEN const int64_t *tk_symbols(const tk_exec *exec);

/* Where an argument of a step lies. */
enum {
  TK_ARG_INPUT = 0,   /* input `index` of the model, plus `offset` bytes */
  TK_ARG_OUTPUT = 1,  /* output `index` of the model, plus `offset` bytes */
  TK_ARG_CONST = 2,   /* `offset` bytes into the constants; index is 0. Never written. */
  TK_ARG_ARENA = 3,   /* `offset` bytes into the arena of the context; index is 0 */
  TK_ARG_COUNTERS = 4 /* `offset` bytes into what a device's context has that is zero between runs; index is 0 */
};

typedef struct tk_arg {
  int32_t kind;
  int32_t index;
  int64_t offset;
  int64_t sample_offset; /* in the arena: so many bytes more for each step of symbol 0 (or its counters) */
} tk_arg;

typedef struct tk_step {
  tk_kernel fn;
  int32_t first_arg; /* into tk_plan.args */
  int32_t n_args;
  int32_t kernel;   /* index into the "kernels" list of the manifest */
  int32_t guard;    /* 0: it is always called; else number guard - 1 of tk_plan.guards, which reads the argument behind
                     * the step's own */
} tk_step;

/* A step is left out unless one of the truth values (bytes) that lie side by side, of any sample of a free batch, is
 * as expected: nothing looks at what it makes then. */
typedef struct tk_guard {
  int32_t elements;
  int32_t expected;
  int64_t sample_stride; /* bytes from one sample's to the next one's; 0: they are the same for all */
} tk_guard;

/* A dimension of an input or output. factors null: there are `extent` elements. Else a run has so many of them, from
 * the first on: offset plus each factor times its symbol, by divisor, rounded down. What lies beyond does not matter,
 * but kernels may read and write there. extent -1, for the first dimension of a free batch: kernels, too, find as many
 * as the run has. */
typedef struct tk_plan_dim {
  int64_t extent;
  const int64_t *factors; /* null, or as many as there are symbols */
  int64_t offset;
  int64_t divisor; /* 1 or more */
} tk_plan_dim;

/* A symbolic dimension. Its value is taken from the first input dimension that is this symbol and nothing else, and
 * all others are checked against it: min <= value <= max and value % divisor == 0. Of the last n_counts symbols the run
 * finds out the value; before, tensors are those of all values that these have. */
typedef struct tk_symbol {
  int64_t min, max, divisor;
} tk_symbol;

/* dtype as in DLPack: code 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool, 10 to 17 small floats; bits per element; lanes 1.
 * Memory is dense and row-major. */
typedef struct tk_plan_tensor {
  uint8_t dtype_code;
  uint8_t dtype_bits;
  uint16_t dtype_lanes;
  int32_t rank;
  const tk_plan_dim *dims; /* rank of them; may be null when rank is 0 */
} tk_plan_tensor;

/* An input that a run extends along `axis` to an output, in the memory of the output, with its strides: kernels find
 * the input there, and write what is new behind it. They do not touch the memory of the input itself. */
typedef struct tk_state {
  int32_t input, output, axis;
  int32_t reserved; /* 0 */
} tk_state;

/* One launch of a device function. Its arguments are pointers: those of the step, in the order that
 * tk_device_plan.args says. */
typedef struct tk_launch {
  int32_t function; /* index into tk_device_plan.functions */
  int32_t step;     /* the step of the plan that it belongs to; steps come in order */
  int32_t first_arg, n_args; /* into tk_device_plan.args */
  uint32_t grid[3], block[3]; /* blocks along x, y, z; threads of one block */
  uint32_t shared_bytes;      /* memory that the threads of a block share */
  uint32_t dynamic_bytes;     /* of these, what the function does not declare itself: the launch asks for it */
  uint32_t elastic;           /* 1: grid[0] is the most that makes sense, fewer blocks do the same work */
  int64_t block_bytes;        /* not 0: global memory of each block; its address is one more argument */
} tk_launch;

/* A run needs so many blocks of a launch along an axis: `times` the places that `end` says, by `step`, rounded up. Those
 * behind compute what the run does not have. */
typedef struct tk_grid_end {
  int32_t launch, axis; /* number of the launch; 0 to 2 */
  int64_t times, step;  /* 1 or more */
  tk_plan_dim end;
} tk_grid_end;

/* Where a step's launches come in a recorded run that has some side by side: behind those of the steps before it on its
 * branch, and behind all launches of the steps that it waits for, which come before it in the plan, too. */
typedef struct tk_turn {
  int32_t branch;
  int32_t first_wait, n_waits; /* into tk_device_plan.waits */
} tk_turn;

/* What a device runs instead of the steps' functions (which are null then), from the images in tk_blobs. */
typedef struct tk_device_plan {
  const char *target; /* as the user names it, for messages */
  int32_t n_functions, n_launches;
  const char *const *functions; /* names in the images */
  const tk_launch *launches;    /* in order */
  const int32_t *args;          /* indices into tk_plan.args */
  const tk_grid_end *ends;      /* null where there are none */
  int32_t n_ends;
  int32_t sample_alignment;     /* not 0: a run has as many times the blocks along z as symbol 0 says, and in each tensor
                                 * whose first dimension that is, samples begin at multiples of so many bytes */
  int64_t counter_bytes;        /* of what is zero between runs: launches leave it so. For each sample of a free batch */
  const tk_turn *turns;         /* of each step; null where all launches follow each other */
  const int32_t *waits;         /* numbers of steps */
  int32_t n_waits;
  int32_t n_branches;           /* 1 where there are no turns */
} tk_device_plan;

/* A plan for some of the model's sizes, with kernels and memory of its own: for runs in which each symbol of the general
 * plan is in its range. It is whole, as if it were a library of its own with these sizes: inputs and results are those
 * of the general plan, symbols and checks are numbered and named by themselves. The functions of a device and the
 * constants are shared; features, threads, constants_bytes and specialisations have no meaning in it. */
typedef struct tk_specialisation {
  const struct tk_plan *plan;
  const tk_symbol *ranges; /* for each symbol of the general plan; divisors are as there */
} tk_specialisation;

typedef struct tk_plan {
  int32_t version; /* TK_PLAN_VERSION */
  int32_t n_inputs, n_outputs, n_symbols, n_steps, n_args, n_features;
  int32_t threads; /* default number of threads; 0: one per core that the process may use */
  const tk_plan_tensor *inputs;
  const tk_plan_tensor *outputs;
  const tk_symbol *symbols;
  const tk_step *steps; /* run in this order */
  const tk_guard *guards;
  const tk_arg *args;
  const char *const *features; /* CPU features the kernels need, by name: "avx2", "fma", "avx512f" ... */
  int64_t arena_bytes;         /* with every symbol at its maximum, but for what follows */
  int64_t scratch_bytes;       /* for each thread */
  int64_t constants_bytes;     /* must equal the size of the constants that are linked in */
  const tk_device_plan *device; /* null: the kernels are functions of this library */
  int64_t sample_bytes;         /* what the arena has besides, for each step of symbol 0 */
  int64_t n_checks;             /* of the outputs, the last ones are checks, which callers do not see: one int32
                                 * each, 0 where the inputs ask for what was not compiled; its name says what */
  int32_t n_sizes;              /* of the inputs, the last ones are sizes, which callers do not see: one int64 each, the
                                 * value of symbol first_size, first_size + 1 ... in this run */
  int32_t first_size;
  int32_t n_counts; /* before the checks there are so many outputs that callers do not see: one int64 each, the value of
                     * a symbol, for each of the last ones */
  const tk_state *states; /* null where there are none */
  int64_t n_states;
  int32_t n_specialisations; /* a run takes the first one that holds its sizes, else this plan, the general one */
  const tk_specialisation *specialisations;
} tk_plan;

/* Defined by the generated source, once per library. */
extern TK_HIDDEN const tk_plan tk_plan_model;

#ifdef __cplusplus
}
#endif

#endif
