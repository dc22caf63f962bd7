// What devices behind CUDA's driver and HIP's runtime have in common, over the functions in which they differ.
#ifndef TK_GPU_H
#define TK_GPU_H

#include <cstdint>
#include <string>
#include <vector>

#include "device.h"

namespace tk {

// One GPU that the driver shows.
struct Gpu {
  int32_t number;
  std::string name;
  std::string arch;  // sm_80, gfx906
};

enum class Copy { kUpload, kDownload, kWithin };

// Functions of a driver. All but the first few give its status, 0 for success. Modules, functions, streams, events and
// graphs are the driver's handles.
class GpuApi {
 public:
  virtual ~GpuApi() = default;
  virtual const char *maker() const = 0;   // for messages: "NVIDIA"
  virtual int32_t dlpack_type() const = 0;
  // The image for an arch, or null where the program has none.
  virtual const Image *fitting(const Program &program, const std::string &arch) const = 0;
  virtual std::string describe(int status) const = 0;  // name and meaning
  virtual bool is_memory(int status) const = 0;        // whether memory ran out
  // Why an image does not load and what helps, beside the driver's words; empty where they say all.
  virtual std::string advice(int, const Image &, const std::string &) const { return ""; }

  // Between these two, calls of this thread go to one GPU.
  virtual int enter(int32_t number) = 0;
  virtual void leave() = 0;

  virtual int load(const Image &image, void **module) = 0;
  virtual void unload(void *module) = 0;
  virtual int find(void *module, const char *name, void **function) = 0;
  virtual int allow_shared(void *function, int bytes) = 0;

  virtual int allocate(size_t bytes, void **memory) = 0;
  virtual void release(void *memory) = 0;

  virtual int open_stream(void **stream) = 0;
  virtual void close_stream(void *stream) = 0;
  virtual int wait(void *stream) = 0;
  virtual int copy(Copy kind, void *to, const void *from, size_t bytes, void *stream) = 0;
  // `overlapped`: its blocks may come before the launch in front of it is done, for which they wait themselves.
  virtual int launch(void *function, const Launch &launch, bool overlapped, void *stream, void **params) = 0;
  // Whether kernels of an image wait so, and this driver records such launches.
  virtual bool overlaps(const Image &) const { return false; }

  virtual int open_event(void **event) = 0;
  virtual void close_event(void *event) = 0;
  virtual int mark(void *event, void *stream) = 0;
  virtual int elapsed(void *from, void *to, float *milliseconds) = 0;
  // What comes on a stream waits for an event; one of a recorded stream puts this stream into its recording.
  virtual int follow(void *stream, void *event) = 0;

  // Graphs: what is put on a stream between begin and end is recorded, to be done again as one.
  virtual bool has_graphs() const = 0;
  virtual bool is_recorded(void *stream) const = 0;
  virtual int begin_capture(void *stream) = 0;
  virtual int end_capture(void *stream, void **graph) = 0;
  virtual int replay(void *graph, void *stream) = 0;
  virtual void close_graph(void *graph) = 0;
};

// The driver and the GPUs that it shows; `api` lives as long as the process. Each driver's file has one.
tk_status find_gpus(GpuApi **api, std::vector<Gpu> *gpus);

// The first library that opens, which stays open; null with the reason for the first in `why` where none does.
void *open_driver(const char *const *names, int32_t count, std::string *why);

}  // namespace tk

#endif
