/* The interface of a compiled model library. C99 and C++.
 *
 * A library holds one model: its kernels, its constants and a manifest. Link with it, or dlopen it and
 * take everything from the one symbol `tk_model_api_v1`. All libraries that export these symbols can be
 * loaded into one process; they share one pool of threads.
 *
 *   tk_model    immutable; may be used by any number of threads at the same time
 *   tk_context  arena, scratch and threads of one inference at a time; one thread at a time
 *
 * Numbers: the caller's floating-point settings do not matter. While a model runs, rounding is to nearest
 * and subnormal numbers are kept (IEEE 754), unless the context was made with TK_CONTEXT_FLUSH_SUBNORMALS,
 * which treats them as zero (faster where they are frequent). The caller's settings are put back.
 *
 * Elements of fewer than 8 bits (int4, uint4, int2, uint2, float4_e2m1fn) are packed without gaps over the whole
 * tensor, the first element in the lowest bits of a byte; the unused bits of the last byte are 0 in outputs and do
 * not matter in inputs. A tensor of n elements of b bits has (n * b + 7) / 8 bytes.
 *
 * The major version of the interface is part of every symbol's name. Structures that may grow begin with
 * their size: set `struct_size = sizeof(...)`, zero the rest.
 */
#ifndef TK_MODEL_H
#define TK_MODEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The tensor of DLPack 0.x/1.x. Include DLPack's own header before this one to use its definitions. */
#ifndef DLPACK_DLPACK_H_
typedef enum { kDLCPU = 1 } DLDeviceType;
typedef enum {
  kDLInt = 0,
  kDLUInt = 1,
  kDLFloat = 2,
  kDLBfloat = 4,
  kDLComplex = 5,
  kDLBool = 6,
  kDLFloat8_e4m3fn = 10,
  kDLFloat8_e4m3fnuz = 11,
  kDLFloat8_e5m2 = 12,
  kDLFloat8_e5m2fnuz = 13,
  kDLFloat8_e8m0fnu = 14,
  kDLFloat4_e2m1fn = 17
} DLDataTypeCode;
typedef struct {
  int32_t device_type;
  int32_t device_id;
} DLDevice;
typedef struct {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} DLDataType;
typedef struct {
  void *data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t *shape;
  int64_t *strides; /* in elements; null: dense, row-major */
  uint64_t byte_offset;
} DLTensor;
#endif

#define TK_MODEL_ABI 1

/* Every function that can fail returns one of these. */
typedef int32_t tk_status;
enum {
  TK_OK = 0,           /* Done. */
  TK_ERR_ARGUMENT = 1, /* The call is wrong: a null pointer, an index or a value out of range. */
  TK_ERR_INPUT = 2,    /* An input tensor does not fit: count, dtype, rank, a dimension, strides, alignment. */
  TK_ERR_OUTPUT = 3,   /* An output tensor does not fit. */
  TK_ERR_HOST = 4,     /* This machine lacks something the library was built for, such as a CPU feature. */
  TK_ERR_MEMORY = 5,   /* Not enough memory. */
  TK_ERR_DEVICE = 6,   /* A tensor lies on a device that this library cannot reach. */
  TK_ERR_BUSY = 7,     /* The context is already running in another thread. */
  TK_ERR_LIBRARY = 8   /* The library contradicts itself: damaged, or its parts were built apart. */
};

typedef struct tk_model tk_model;
typedef struct tk_context tk_context;

/* A dimension: `symbol` is -1 and min == max == the extent, or `symbol` numbers a dimension whose value the
 * inputs decide, from min to max in steps of `divisor`. Equal symbols have equal values in one run; what follows from
 * other dimensions, as a sum does from its parts, has a symbol of its own. `counted` is 1 where not the shapes of
 * inputs decide but what the run finds in them, such as boxes above a threshold: the value is known after a run. */
typedef struct {
  int64_t min, max, divisor;
  int32_t symbol;
  int32_t counted;
} tk_dim;

/* Valid as long as the model is open. `bytes`: size with every symbol at its maximum. */
typedef struct {
  const char *name; /* UTF-8 */
  DLDataType dtype;
  int32_t rank;
  const tk_dim *dims;
  int64_t bytes;
} tk_tensor_info;

/* A state: input `input` is what output `output` was in the run before, which begins with it along dimension `axis`, as
 * the keys and values that a decoder keeps. */
typedef struct {
  int32_t input, output, axis;
  int32_t reserved;
} tk_state_info;

enum {
  TK_CONTEXT_FLUSH_SUBNORMALS = 1, /* treat subnormal numbers as zero */
  TK_CONTEXT_CALLERS_STREAM = 2    /* `stream` is the caller's also where it is null: the default stream of CUDA and HIP */
};

typedef struct {
  size_t struct_size;
  int32_t threads; /* 0: what the library was compiled for, else one per core the process may use */
  uint32_t flags;  /* TK_CONTEXT_... */
  void *stream;    /* stream or queue of the caller, for devices that have one; must be null on a CPU. Null: one of the
                    * context's own, unless a flag says otherwise. Runs on a caller's stream whose tensors all lie on
                    * the device return when their work is in the queue. */
} tk_context_options;

/* One step of a profiled run. `kernel` indexes the list "kernels" of the manifest. */
typedef struct {
  int32_t kernel;
  int32_t reserved;
  int64_t nanoseconds;
} tk_step_time;

/* What a run takes, in nanoseconds: `kernels` without copies between the caller's memory and the device's and without
 * waiting for the host, as the mean of several runs (one, of long ones) one behind the other; `with_copies` from the first copy to the last
 * one, as the device's clock sees one run. Where kernels run on the host's cores both are of one run. */
typedef struct {
  size_t struct_size;
  int64_t kernels, with_copies;
} tk_run_times;

/* Opens the model of this library. Refused (TK_ERR_HOST) when the CPU lacks a feature; the message names
 * the feature and the command that builds for this CPU. */
tk_status tk_model_open_v1(tk_model **model);

/* As tk_model_open_v1, on a device: which devices there are and how they are named depends on the target
 * ("", "0", "gpu:1", "emulator", a part of a name ...). Null: what the environment's TK_DEVICE says, else the first
 * that fits. Refused (TK_ERR_HOST) without the driver that is needed, and (TK_ERR_DEVICE) without a device that this
 * library has code for; the message names both. */
tk_status tk_model_open_on_v1(const char *device, tk_model **model);

/* Closes a model. Its contexts must be closed before. Null is accepted. */
void tk_model_close_v1(tk_model *model);

/* What the model runs on, for people: "NVIDIA H100 (sm_90)"; empty where its kernels are code of the host. Valid
 * until the model is closed. */
const char *tk_model_device_v1(const tk_model *model);

/* Where queues and memory have to be made that are handed over: the cl_context of a model for OpenCL, valid until the
 * model is closed. Null where the driver's own is the one: CUDA's and HIP's primary context, SYCL's default context
 * of the device; and without a device. */
void *tk_model_native_context_v1(const tk_model *model);

int32_t tk_model_input_count_v1(const tk_model *model);
int32_t tk_model_output_count_v1(const tk_model *model);
tk_status tk_model_input_v1(const tk_model *model, int32_t index, tk_tensor_info *info);
tk_status tk_model_output_v1(const tk_model *model, int32_t index, tk_tensor_info *info);

/* What a run with these inputs makes of the outputs' dimensions and element types, as tk_context_run_v1 writes them;
 * for whoever gives outputs memory of exactly their size. Nothing runs, and no data is looked at: it may be null. A
 * dimension that is counted has the largest extent that it may get. */
tk_status tk_model_shapes_v1(const tk_model *model, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                             int32_t n_outputs);

/* The states of a model, in the order of the inputs; none for most. */
int32_t tk_model_state_count_v1(const tk_model *model);
tk_status tk_model_state_v1(const tk_model *model, int32_t index, tk_state_info *info);

/* The manifest: JSON, UTF-8, *bytes long and followed by a zero byte. Needs no open model, so that it can
 * be read on a machine that cannot run the library. */
const char *tk_model_manifest_v1(size_t *bytes);

/* Makes a context. options may be null. */
tk_status tk_context_open_v1(const tk_model *model, const tk_context_options *options, tk_context **context);
void tk_context_close_v1(tk_context *context);

/* The number of threads that runs of this context use from now on (1: none but the caller's; 0: as at
 * opening with 0). */
tk_status tk_context_set_threads_v1(tk_context *context, int32_t threads);
int32_t tk_context_threads_v1(const tk_context *context);

/* One inference. inputs and outputs: as many tensors as the model has, in its order; dense, row-major,
 * aligned to their element size.
 *   - An output's data may be null: the context then allocates it and keeps it until its next run or its
 *     close; data is set to that memory.
 *   - An output may share memory with inputs (in place) or lie beside them; the result is the same as with
 *     memory of its own. Two outputs must not overlap.
 *   - For an output, `ndim` says how many elements `shape` has room for. The actual dimensions are written
 *     to shape and ndim; to strides, too, where these are given and a dimension is counted. Memory that is given has
 *     room for what tk_model_shapes_v1 says; the elements that there are lie dense at its beginning. dtype is checked
 *     where data is given (for a null data it is written).
 *   - A context keeps the states of its last run. The inputs of all states may be left out: the run goes on from what
 *     is kept, nothing at first, and only what is new is written. Their outputs may be left out, too, and are not copied
 *     then. The other tensors keep their order. A run that fails changes nothing of what is kept, unless it was given
 *     states: then nothing is kept. */
tk_status tk_context_run_v1(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                            int32_t n_outputs);

/* As tk_model_shapes_v1, with states as tk_context_run_v1 takes them. */
tk_status tk_context_shapes_v1(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                               int32_t n_outputs);

/* Forgets all but the first `length` places of the states, which is as much as there is at most; 0: all of it. */
tk_status tk_context_reset_v1(tk_context *context, int64_t length);

/* As tk_context_run_v1, and measures each step: on devices that record launches each step several times one behind
 * the other, so that no waiting for the host is in its time. times has room for *count; *count is set to the number of
 * steps. With times == null nothing runs and only *count is set: to the most that there are, as a library may have other
 * steps for some sizes. */
tk_status tk_context_profile_v1(tk_context *context, const DLTensor *inputs, int32_t n_inputs,
                                DLTensor *outputs, int32_t n_outputs, tk_step_time *times, int32_t *count);

/* As tk_context_run_v1, and measures the run as a whole. */
tk_status tk_context_measure_v1(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                                int32_t n_outputs, tk_run_times *times);

/* What went wrong in the calling thread's last call into this library that failed; never null. Valid until
 * the next call from this thread. */
const char *tk_last_error_v1(void);

/* One sentence on a status code. */
const char *tk_status_text_v1(tk_status status);

/* Everything above in one table, for dlopen: dlsym(library, "tk_model_api_v1"). */
typedef struct {
  size_t struct_size;
  tk_status (*model_open)(tk_model **model);
  void (*model_close)(tk_model *model);
  int32_t (*model_input_count)(const tk_model *model);
  int32_t (*model_output_count)(const tk_model *model);
  tk_status (*model_input)(const tk_model *model, int32_t index, tk_tensor_info *info);
  tk_status (*model_output)(const tk_model *model, int32_t index, tk_tensor_info *info);
  const char *(*model_manifest)(size_t *bytes);
  tk_status (*context_open)(const tk_model *model, const tk_context_options *options, tk_context **context);
  void (*context_close)(tk_context *context);
  tk_status (*context_set_threads)(tk_context *context, int32_t threads);
  int32_t (*context_threads)(const tk_context *context);
  tk_status (*context_run)(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                           int32_t n_outputs);
  tk_status (*context_profile)(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                               int32_t n_outputs, tk_step_time *times, int32_t *count);
  const char *(*last_error)(void);
  const char *(*status_text)(tk_status status);
  tk_status (*model_open_on)(const char *device, tk_model **model);
  const char *(*model_device)(const tk_model *model);
  void *(*model_native_context)(const tk_model *model);
  tk_status (*model_shapes)(const tk_model *model, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                            int32_t n_outputs);
  int32_t (*model_state_count)(const tk_model *model);
  tk_status (*model_state)(const tk_model *model, int32_t index, tk_state_info *info);
  tk_status (*context_shapes)(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                              int32_t n_outputs);
  tk_status (*context_reset)(tk_context *context, int64_t length);
  tk_status (*context_measure)(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                               int32_t n_outputs, tk_run_times *times);
} tk_model_api;

extern const tk_model_api tk_model_api_v1;

#ifdef __cplusplus
}
#endif

#endif
