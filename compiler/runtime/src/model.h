// The immutable part: the plan of this library with the names of its tensors.
#ifndef TK_MODEL_IMPL_H
#define TK_MODEL_IMPL_H

#include <algorithm>
#include <memory>
#include <vector>

#include "device.h"
#include "tk_model.h"
#include "tk_plan.h"

namespace tk {

// An input or output as callers see it.
struct Tensor {
  const char *name;
  const char *role;  // "input" or "output"
  DLDataType dtype;
  std::vector<tk_dim> dims;
  const tk_plan_tensor *plan;
  int64_t max_elements;  // with every symbol at its maximum

  int64_t element_bytes() const { return (dtype.bits * int64_t{dtype.lanes} + 7) / 8; }
  // Elements narrower than a byte are packed.
  int64_t bytes(int64_t elements) const { return (elements * dtype.bits * dtype.lanes + 7) / 8; }
};

}  // namespace tk

struct tk_model {
  const tk_plan *plan;
  std::vector<tk::Tensor> inputs;   // those that callers give
  std::vector<tk::Tensor> outputs;  // counts and checks of the runtime last
  std::vector<const char *> symbols;  // what the model calls them; empty where it does not
  int32_t n_results = 0;            // outputs that callers see
  std::vector<tk_state> states;
  std::vector<bool> is_past, is_present;  // of each input and output: whether a state is one of them
  std::shared_ptr<tk::Device> device;  // null: the kernels are host code
  void *device_constants = nullptr;
  // The same model for some sizes, with kernels of its own. A run takes the first that holds its sizes, else this one.
  std::vector<std::unique_ptr<tk_model>> specialised;
  const tk_symbol *ranges = nullptr;   // which sizes of the general model this one is for; null: it is the general one

  // The largest of a number that each plan has.
  template <typename Number>
  Number most(Number tk_plan::*number) const {
    Number found = plan->*number;
    for (const std::unique_ptr<tk_model> &own : specialised) found = std::max(found, own->plan->*number);
    return found;
  }
  // The number of the specialised model for a run with these values of the symbols; there may be none.
  size_t specialised_for(const std::vector<int64_t> &symbols) const;

  tk_model() = default;
  ~tk_model();
  tk_model(const tk_model &) = delete;
  tk_model &operator=(const tk_model &) = delete;
};

namespace tk {

// Checks the library and the machine, then fills `model`. `selector` names the device; null: TK_DEVICE does.
tk_status describe(const tk_plan &plan, const char *selector, tk_model *model);

}  // namespace tk

#endif
