// One inference at a time on a device.
#ifndef TK_DEVICE_CONTEXT_H
#define TK_DEVICE_CONTEXT_H

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "binding.h"
#include "device.h"
#include "extents.h"
#include "memory.h"
#include "model.h"
#include "timing.h"

namespace tk {

class DeviceContext {
 public:
  // `general`: the context of which this is the part for some sizes; they share memory, as one of them runs at a time.
  static tk_status open(const tk_model &model, const Stream &stream, const DeviceContext *general,
                        std::unique_ptr<DeviceContext> *context);
  ~DeviceContext();
  DeviceContext(const DeviceContext &) = delete;
  DeviceContext &operator=(const DeviceContext &) = delete;

  // `symbols`: of this run; the first one says how many samples there are, where a batch is free.
  tk_status run(const std::vector<int64_t> &symbols, const std::vector<Buffer> &inputs,
                const std::vector<Box> &input_boxes, const std::vector<Buffer> &outputs,
                const std::vector<Box> &output_boxes, const Timing &timing);

  // Once it is known how much of outputs there is, which boxes say: gives callers those parts.
  tk_status hand_over_counted(const std::vector<Buffer> &outputs, const std::vector<Box> &boxes);

 private:
  // Memory on the device for a tensor that the caller keeps elsewhere.
  struct Own {
    unsigned char *data = nullptr;
    int64_t bytes = 0;
  };

  // Memory that is undefined between runs, but for counters.
  struct Room {
    explicit Room(std::shared_ptr<Device> of) : device(std::move(of)) {}
    ~Room() {
      device->release(arena.data);
      device->release(blocks.data);
      device->release(counters.data);
    }
    Room(const Room &) = delete;
    Room &operator=(const Room &) = delete;

    const std::shared_ptr<Device> device;
    Own arena, blocks;
    Own counters;                 // zero between runs
    bool counters_clear = false;  // as known: not where they are new, or a run failed
  };

  using Grids = std::vector<std::array<uint32_t, 3>>;

  // The launches of runs with the same pointers and grids; callers that take turns with buffers have several.
  struct Recording {
    std::vector<void *> pointers;
    Grids grids;
    bool is_recorded = false;
    uint64_t last_run = 0;
  };

  DeviceContext(const tk_model &model, bool callers_stream);
  tk_status run_on_device(const std::vector<int64_t> &symbols, const std::vector<Buffer> &inputs,
                          const std::vector<Box> &input_boxes, const std::vector<Buffer> &outputs,
                          const std::vector<Box> &output_boxes, const Timing &timing);
  tk_status enqueue(const std::vector<Buffer> &inputs, const std::vector<Box> &input_boxes,
                    const std::vector<Buffer> &outputs, const std::vector<Box> &output_boxes, const Timing &timing);
  tk_status reserve(Own *own, int64_t bytes);
  // The same, full of zeros where it is new: kernels may read all of it.
  tk_status reserve_zeros(Own *own, int64_t bytes);
  tk_status fill_zeros(const Own &own);
  uint32_t columns(const tk_launch &launch) const;  // its blocks along x
  int64_t bytes_of_blocks(const tk_device_plan &plan) const;  // what the blocks of any launch have to themselves
  tk_status reserve_room();
  tk_status place_samples(const std::vector<int64_t> &symbols);
  tk_status clear_counters();
  void size_grids(const std::vector<int64_t> &symbols);
  tk_status place_inputs(const std::vector<Buffer> &inputs, const std::vector<Box> &boxes);
  // States lie in the memory of the outputs that they are extended to.
  tk_status place_states(const std::vector<Buffer> &inputs, const std::vector<Box> &boxes);
  tk_status place_part(size_t input, const Buffer &given, const Box &box);
  tk_status place_outputs(const std::vector<Buffer> &inputs, const std::vector<Buffer> &outputs,
                          const std::vector<Box> &boxes);
  void resolve();
  tk_status launch_steps(int32_t first, int32_t end);
  tk_status launch_all() { return launch_steps(0, model_.plan->n_steps); }
  // The same, as one recorded piece from the second run on that has these pointers.
  tk_status launch_or_replay();
  // All of them on their branches, while a recording is open.
  tk_status launch_branches();
  // All launches of a run; false where that fails.
  bool record_run(int32_t number);
  // The launches of a step, so many times; false where that fails.
  bool record_step(int32_t number, int32_t step, int32_t times);
  bool has_launches(int32_t step) const;
  // All launches, and what each step takes.
  tk_status time_steps(tk_step_time *times);
  tk_status time_recorded(int64_t *nanoseconds);  // of what a step does once
  tk_status time_launches(tk_step_time *times);
  // What all launches of a run take that was done in so many nanoseconds.
  tk_status time_kernels(int64_t once, int64_t *nanoseconds);
  bool is_of_this_run(const Recording &recording) const;
  size_t find_recording();  // that of this run, else in place of the one that was not used for the longest time
  tk_status hand_over(const std::vector<Buffer> &outputs, const std::vector<Box> &boxes);
  static bool goes_by_host(const Buffer &given, const Box &box);
  tk_status hand_over_part(size_t output, const Buffer &given, const Box &box);
  // What is left to do on the host when the device is done.
  void gather_outputs(const std::vector<Buffer> &outputs, const std::vector<Box> &boxes);

  const tk_model &model_;
  const bool callers_stream_;
  const uint32_t enough_;  // blocks, where they deal out work among them
  std::unique_ptr<Queue> queue_;
  std::shared_ptr<Room> room_;
  std::vector<Own> own_inputs_, own_outputs_;
  std::vector<Mapping> host_inputs_, host_outputs_;  // as own_..., between the device and the caller's memory
  std::vector<unsigned char *> inputs_, outputs_;  // of this run
  int64_t samples_ = 1;                            // of this run
  Grids grids_;                                    // of all launches, in this run
  std::vector<void *> pointers_;                   // the arguments of all launches
  std::vector<Recording> recordings_;
  uint64_t runs_ = 0;
  bool records_ = true;                            // until it fails
  bool has_branches_;                              // the same, of branches
};

}  // namespace tk

#endif
