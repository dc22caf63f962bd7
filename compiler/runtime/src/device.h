// What the runtime asks of a device. One file of devices/ is linked into a library and implements it; those
// for GPUs come with devices/emulator.cpp beside.
#ifndef TK_DEVICE_H
#define TK_DEVICE_H

#include <cstdint>

#include "tk_model.h"

namespace tk {

// One built form of the model's kernels: the source, an intermediate form, or the binary of one arch.
struct Image {
  const char *kind;
  const char *arch;  // empty: any
  const unsigned char *data;
  int64_t bytes;
};

// What a device loads. `functions` are the names in the images that launches refer to.
struct Program {
  const char *target;  // as the user named it, for messages
  const Image *images;
  int32_t n_images;
  const char *const *functions;
  int32_t n_functions;
};

struct Launch {
  int32_t function;  // index into Program::functions
  uint32_t grid[3];  // blocks (work-groups) along x, y, z
  uint32_t block[3]; // threads (work-items) of one block
  uint32_t shared_bytes;  // what the threads of a block share in all
  uint32_t dynamic_bytes; // of these, what the function does not declare itself
};

// Where a context's work goes: to the caller's stream (queue), where null is the driver's default one, or to one of the
// context's own.
struct Stream {
  void *handle;
  bool callers;
};

// Work in order. Used by one thread at a time. Except for finish() and elapsed(), calls may return before
// the work is done; what they read and write has to stay until finish().
class Queue {
 public:
  virtual ~Queue() = default;
  virtual tk_status upload(void *to, const void *from, int64_t bytes) = 0;
  virtual tk_status download(void *to, const void *from, int64_t bytes) = 0;
  virtual tk_status copy(void *to, const void *from, int64_t bytes) = 0;  // within the device
  virtual tk_status launch(const Launch &launch, void *const *args, int32_t n_args) = 0;
  // A point in time, of those numbered 0, 1, ...; a number may be used again.
  virtual tk_status mark(int32_t number) = 0;
  virtual tk_status elapsed(int32_t from, int32_t to, int64_t *nanoseconds) = 0;  // after finish()
  virtual tk_status finish() = 0;
  // Graphs, where a device has them: launches between begin and end are recorded, not done; replay does all of them.
  // Recordings are numbered 0, 1, ...; a number may be used again.
  // Launches of a recording are on branches, the first of so many until set_branch() names another one: those of a
  // branch follow each other. name_point() names what the current branch has so far by a number, await() puts the
  // current branch behind that.
  virtual bool records() const { return false; }
  virtual tk_status begin_recording(int32_t /*branches*/) { return TK_OK; }
  virtual void set_branch(int32_t /*branch*/) {}
  virtual tk_status name_point(int32_t /*point*/) { return TK_OK; }
  virtual tk_status await(int32_t /*point*/) { return TK_OK; }
  virtual tk_status end_recording(int32_t) { return TK_OK; }
  virtual tk_status replay(int32_t) { return TK_OK; }
};

// A device with the program loaded. Shared by threads.
class Device {
 public:
  virtual ~Device() = default;
  virtual const char *describe() const = 0;
  virtual DLDevice dlpack() const = 0;  // what DLPack calls tensors in its memory
  virtual void *native_context() const { return nullptr; }  // see tk_model_native_context_v1
  // Memory that arithmetic on pointers works on, aligned to TK_ALIGNMENT at least.
  virtual tk_status allocate(int64_t bytes, void **memory) = 0;
  virtual void release(void *memory) = 0;  // null is accepted
  virtual bool has_default_stream() const { return false; }  // which a caller's null means
  virtual tk_status open_queue(const Stream &stream, Queue **queue) = 0;
};

// Finds the device that `selector` names (empty: the first that fits) and loads the image that fits it.
tk_status open_native_device(const Program &program, const char *selector, Device **device);

// The emulator, which the files for GPUs hand its selectors on to: "emulator", which finds its library by the
// environment's TK_EMULATOR, or "emulator:" and the library's path.
bool asks_for_emulator(const char *selector);
tk_status open_emulator(const Program &program, const char *selector, Device **device);

}  // namespace tk

#endif
