// The mutable part: memory and threads of one inference at a time.
#ifndef TK_CONTEXT_H
#define TK_CONTEXT_H

#include <atomic>
#include <vector>

#include "binding.h"
#include "device_context.h"
#include "exec.h"
#include "extents.h"
#include "memory.h"
#include "model.h"

struct tk_context {
 public:
  tk_context(const tk_model &model, const tk_context_options &options);

  // To be called once before anything else.
  tk_status prepare();
  tk_status set_threads(int32_t threads);
  int32_t threads() const { return threads_; }
  // times may be null; otherwise it has room for one entry per step.
  tk_status run(const DLTensor *inputs, DLTensor *outputs, tk_step_time *times);

  const tk_model &model() const { return model_; }
  // Set while a run is under way; guards against a second thread.
  std::atomic<bool> busy{false};

 private:
  // An argument of a step that differs from run to run.
  struct OpenArg {
    size_t position;  // in pointers_
    int32_t index;    // of the input or output
    int64_t offset;
  };

  void resolve_fixed();
  // Makes room for the samples of this run, and gives the steps their places in it.
  tk_status place_samples();
  void resolve_open(const std::vector<OpenArg> &open, const std::vector<tk::Buffer> &buffers);
  // Gives inputs of which the run has a part a place where all of it would fit.
  tk_status stage_inputs();
  // The same for outputs, and for those that overlap an input still needed later, until the end.
  tk_status stage_outputs();
  tk_status stage_overlapping(int64_t needed);
  void hand_over();
  // After the kernels: cuts outputs to what was found, hands them over, and reads the checks.
  tk_status settle(DLTensor *outputs);
  bool overlaps_live_input(size_t output) const;
  void find_lifetimes();
  bool is_needed(const tk_step &step) const;
  void execute(tk_step_time *times);

  const tk_model &model_;
  const tk_context_options options_;
  int32_t default_threads_;
  int32_t threads_ = 1;
  tk::Mapping arena_, scratch_, staging_;
  std::vector<tk::Mapping> staged_inputs_, staged_outputs_;  // of those that may be parts: with their largest extents
  int64_t scratch_stride_ = 0;
  int64_t samples_ = 0;  // that pointers_ are for
  std::vector<void *> pointers_;  // one per entry of plan.args
  std::vector<OpenArg> open_inputs_, open_outputs_;
  std::vector<int32_t> last_use_;     // of each input: the last step that has it as argument, or -1
  std::vector<int32_t> first_write_;  // of each output: the first step that has it as argument
  std::vector<tk::Mapping> owned_;    // memory of outputs that the caller gave none for
  std::vector<tk::Worker *> workers_;
  std::unique_ptr<tk::DeviceContext> device_;  // null: the kernels are host code
  // Per run; kept to save allocations.
  std::vector<int64_t> symbols_;
  std::vector<tk::Buffer> inputs_, outputs_;
  std::vector<tk::Box> input_boxes_, output_boxes_;  // of what callers give and get
  std::vector<unsigned char *> targets_;  // of a staged output: where its content goes; else null
};

#endif
