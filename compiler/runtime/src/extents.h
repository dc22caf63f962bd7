// Tensors of which a run has a part of what lies in memory, as the values of symbols say.
#ifndef TK_EXTENTS_H
#define TK_EXTENTS_H

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tk_plan.h"

namespace tk {

// How many elements a run has along a dimension; below 0 where it asks for what there is not.
int64_t extent_of(const tk_plan_dim &dim, const std::vector<int64_t> &symbols);

// The number of the first symbol whose value a run finds out.
int32_t first_counted(const tk_plan &plan);

// Whether a run finds out how many elements it has along a dimension.
bool is_counted(const tk_plan &plan, const tk_plan_dim &dim);

// How many elements there are at most, whatever a run with these symbols finds.
int64_t room_of(const tk_plan &plan, const tk_plan_dim &dim, const std::vector<int64_t> &symbols);

// The symbol that a dimension is and nothing else, or -1.
int32_t symbol_of(const tk_plan_dim &dim, int32_t n_symbols);

// The least and largest extent that the ranges of symbols allow; false where numbers are too large to compute with.
bool range_of(const tk_plan &plan, const tk_plan_dim &dim, int64_t *least, int64_t *most);

// A tensor that is dense where the caller keeps it, and lies in ours as if it had its largest extents.
class Box {
 public:
  Box(const tk_plan &plan, const tk_plan_tensor &tensor) : Box(plan, tensor, tensor, false) {}
  // The same at the beginning of another tensor's memory; `apart`: which is never the caller's.
  Box(const tk_plan &plan, const tk_plan_tensor &tensor, const tk_plan_tensor &memory, bool apart);

  // For a run with these symbols, which fit the tensor.
  void set(const std::vector<int64_t> &symbols);
  // Whether kernels must not be given the caller's memory: they find elements elsewhere, or go beyond its end.
  bool is_part() const { return apart_ || (open_ && (!whole_ || counted_)); }
  // Whether the run finds out how much it has of the tensor.
  bool is_counted() const { return counted_; }
  // Whether the caller's elements lie side by side in our memory, too.
  bool is_one_run() const { return outer_ == 0; }
  int64_t bytes() const { return bytes_; }  // in our memory
  int64_t callers_bytes() const;            // of what a run has of a tensor whose extents it decides

  // From the caller's memory to ours, and back. Where there are no elements, memory is not looked at.
  void spread(unsigned char *ours, const unsigned char *callers) const;
  void gather(unsigned char *callers, const unsigned char *ours) const;

  // Calls move(byte in our memory, byte in the caller's, bytes) for each run of elements that are side by side in both.
  template <typename Move>
  void for_each_run(const Move &move) const {
    int64_t callers = 0;
    if (run_ > 0) walk(first_, 0, &callers, move);
  }

 private:
  template <typename Move>
  void walk(size_t axis, int64_t ours, int64_t *callers, const Move &move) const {
    if (axis == outer_) {
      move(ours, *callers, run_);
      *callers += run_;
      return;
    }
    for (int64_t i = 0; i < extents_[axis]; ++i) walk(axis + 1, ours + i * steps_[axis], callers, move);
  }

  const tk_plan_tensor &tensor_, &memory_;
  const bool apart_;
  const int64_t alignment_;        // of samples in our memory; 1: they lie as the caller's do
  bool open_ = false;              // more than the samples of a batch differ from run to run, or those lie apart
  bool counted_ = false;
  bool whole_ = true;
  int64_t bytes_ = 0, run_ = 0;    // run_: bytes side by side in both
  size_t first_ = 0, outer_ = 0;   // the dimensions from first_ to outer_ - 1 count runs; those before have one index
  std::vector<int64_t> extents_, steps_;  // of this run; bytes in our memory from one index to the next
};

}  // namespace tk

#endif
