// Checks the tensors of one call against the model and finds out where their memory lies.
#ifndef TK_BINDING_H
#define TK_BINDING_H

#include <vector>

#include "memory.h"
#include "model.h"

namespace tk {

// The memory of one tensor in one run.
struct Buffer {
  unsigned char *data = nullptr;
  int64_t bytes = 0;
  bool on_device = false;  // in the memory of the model's device

  bool overlaps(const Buffer &other) const {
    return bytes > 0 && other.bytes > 0 && data < other.data + other.bytes && other.data < data + bytes;
  }
};

// Checks types and dimensions of inputs, and fills `symbols` (one per symbol of the plan).
tk_status bind_symbols(const tk_model &model, const DLTensor *tensors, std::vector<int64_t> *symbols);

// Writes element types and dimensions of outputs, the largest of those that a run finds out; null: nobody wants to know.
tk_status write_shapes(const tk_model &model, const std::vector<int64_t> &symbols,
                       const std::vector<DLTensor *> &tensors);

// Checks inputs, fills `symbols` (one per symbol of the plan) and `buffers`.
tk_status bind_inputs(const tk_model &model, const DLTensor *tensors, std::vector<int64_t> *symbols,
                      std::vector<Buffer> *buffers);

// Checks outputs, writes back their dimensions, and gives memory of `owned` to those without, and to checks, of which
// the caller knows nothing. An output that is null, which nobody wants, has no memory.
tk_status bind_outputs(const tk_model &model, const std::vector<DLTensor *> &tensors, const std::vector<int64_t> &symbols,
                       std::vector<Mapping> *owned, std::vector<Buffer> *buffers);

// Takes what the run found for the values of symbols, and writes the outputs' dimensions that follow. `symbols` stay as
// they are where it found more or less than the library is for.
tk_status read_counts(const tk_model &model, const std::vector<Buffer> &outputs, std::vector<int64_t> *symbols,
                      const std::vector<DLTensor *> &tensors);

// Fails where a check, which has run, says that the inputs ask for what was not compiled.
tk_status read_checks(const tk_model &model, const std::vector<Buffer> &outputs);

}  // namespace tk

#endif
