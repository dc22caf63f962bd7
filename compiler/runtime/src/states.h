// What a context keeps of a model from run to run: inputs that each run extends to outputs.
#ifndef TK_STATES_H
#define TK_STATES_H

#include <cstdint>
#include <vector>

#include "binding.h"
#include "extents.h"
#include "model.h"

namespace tk {

// The tensors of a call. Those of states may be left out, all inputs of them or all outputs.
struct Arguments {
  const DLTensor *inputs;
  int32_t n_inputs;
  DLTensor *outputs;
  int32_t n_outputs;
};

// How much there is of each state; where it lies is up to the context.
class States {
 public:
  explicit States(const tk_model &model);

  // All inputs in the order of the model. States that were left out have the dimensions of what is kept, and no data.
  // Valid until the next call.
  const DLTensor *complete(const Arguments &arguments);
  // All outputs in the order of the model, null where one was left out. Valid until the next call.
  const std::vector<DLTensor *> &wanted(const Arguments &arguments);
  // Whether such a call goes on from what is kept.
  bool has_kept(const Arguments &arguments) const { return kept_ && !are_given(arguments.n_inputs); }
  // Before a run with these inputs: from now on states that were given take the place of what was kept. Those that
  // were left out get no memory here.
  void begin(std::vector<Buffer> *inputs);
  // After a run.
  void keep(const std::vector<int64_t> &symbols);
  void forget() { kept_ = false; }
  // Forgets all but the first `length` places.
  tk_status cut(int64_t length);

 private:
  struct State {
    int32_t input, output;
    size_t axis;
    std::vector<int64_t> shape;
  };

  bool are_given(int32_t n_inputs) const { return n_inputs == static_cast<int32_t>(model_.inputs.size()); }
  int64_t extent_among(const Arguments &arguments, const tk_dim &dim) const;
  void empty(State *state, const Arguments &arguments) const;

  const tk_model &model_;
  std::vector<State> states_;
  bool kept_ = false;  // something; else all states are empty
  bool given_ = false;  // by the caller of this run
  std::vector<DLTensor> inputs_;
  std::vector<DLTensor *> outputs_;
};

// The first places of a state along an axis, as many as `past` has, side by side; `box` says how all of it lies.
std::vector<unsigned char> first_places(const Box &box, const unsigned char *data, const DLTensor &past, int32_t axis);

}  // namespace tk

#endif
