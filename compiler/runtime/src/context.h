// The mutable part: memory and threads of one inference at a time.
#ifndef TK_CONTEXT_H
#define TK_CONTEXT_H

#include <atomic>
#include <memory>
#include <vector>

#include "binding.h"
#include "device_context.h"
#include "exec.h"
#include "extents.h"
#include "memory.h"
#include "model.h"
#include "states.h"
#include "timing.h"

struct tk_context {
 public:
  // `general`: the context of which this is the part for some sizes; they share memory, as one of them runs at a time.
  tk_context(const tk_model &model, const tk_context_options &options, tk_context *general = nullptr);

  // To be called once before anything else.
  tk_status prepare();
  tk_status set_threads(int32_t threads);
  int32_t threads() const { return threads_; }
  tk_status run(const tk::Arguments &arguments, const tk::Timing &timing);
  // What such a run makes of the outputs' dimensions and types.
  tk_status shapes(const tk::Arguments &arguments);
  // Keeps the first `length` places of states.
  tk_status reset(int64_t length) { return ran_->states_.cut(length); }
  // Steps of the plan that has most, and of the one that ran last.
  int32_t most_steps() const;
  int32_t steps_run() const { return ran_->model_.plan->n_steps; }

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

  // Memory that is undefined between runs.
  struct Memory {
    tk::Mapping arena, scratch, staging;
  };

  tk_status prepare_memory();
  tk_status prepare_specialised();
  // The context for the sizes of a run.
  tk_context *for_symbols(const std::vector<int64_t> &symbols);
  // By the plan of this context.
  tk_status run_alone(const tk::Arguments &arguments, const tk::Timing &timing);
  // The inputs of a run with what this context keeps, for another one to go on from. Valid until the next call.
  const DLTensor *take_states(const DLTensor *inputs);
  void resolve_fixed();
  // Makes room for the samples of this run, and gives the steps their places in it.
  tk_status place_samples();
  void resolve_open(const std::vector<OpenArg> &open, const std::vector<tk::Buffer> &buffers);
  // Gives inputs of which the run has a part a place where all of it would fit.
  tk_status stage_inputs();
  // The same for outputs, and for those that overlap an input still needed later, until the end.
  tk_status stage_outputs();
  tk_status stage_overlapping(int64_t needed);
  // Puts states that the caller gave where they are extended.
  void place_states();
  void hand_over();
  // After the kernels: cuts outputs to what was found, hands them over, and reads the checks.
  tk_status settle(const std::vector<DLTensor *> &outputs);
  bool overlaps_live_input(size_t output) const;
  void find_lifetimes();
  bool is_needed(const tk_step &step) const;
  tk_status run_on_host(const tk::Timing &timing);
  void execute(tk_step_time *times);

  const tk_model &model_;
  const tk_context_options options_;
  const tk_context *const general_;
  int32_t default_threads_;
  int32_t threads_ = 1;
  std::shared_ptr<Memory> memory_;
  tk::Mapping &arena_, &scratch_, &staging_;
  std::vector<tk::Mapping> staged_inputs_, staged_outputs_;  // of those that may be parts: with their largest extents
  int64_t scratch_stride_ = 0;
  int64_t samples_ = 0;  // that pointers_ are for
  const unsigned char *resolved_in_ = nullptr;  // the arena that pointers_ are for
  std::vector<void *> pointers_;  // one per entry of plan.args
  std::vector<OpenArg> open_inputs_, open_outputs_;
  std::vector<int32_t> last_use_;     // of each input: the last step that has it as argument, or -1
  std::vector<int32_t> first_write_;  // of each output: the first step that has it as argument
  std::vector<tk::Mapping> owned_;    // memory of outputs that the caller gave none for
  std::vector<tk::Worker *> workers_;
  tk::States states_;
  std::unique_ptr<tk::DeviceContext> device_;  // null: the kernels are host code
  std::vector<std::unique_ptr<tk_context>> specialised_;  // as in the model
  tk_context *ran_ = this;                                // the last time: this, or one of those
  std::vector<std::vector<unsigned char>> taken_states_;
  // Per run; kept to save allocations.
  std::vector<DLTensor> taken_;
  std::vector<int64_t> symbols_;
  std::vector<tk::Buffer> inputs_, outputs_;
  std::vector<tk::Box> input_boxes_, output_boxes_;  // of what callers give and get
  std::vector<unsigned char *> targets_;  // of a staged output: where its content goes; else null
};

#endif
