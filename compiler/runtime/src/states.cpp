#include "states.h"

#include <cstring>

#include "error.h"
#include "extents.h"

namespace tk {
namespace {

// Where the data of a tensor would be that has its memory elsewhere.
alignas(TK_ALIGNMENT) unsigned char elsewhere[TK_ALIGNMENT];

}  // namespace

States::States(const tk_model &model) : model_(model) {
  for (const tk_state &one : model.states) {
    const size_t rank = model.inputs[static_cast<size_t>(one.input)].dims.size();
    states_.push_back({one.input, one.output, static_cast<size_t>(one.axis), std::vector<int64_t>(rank)});
  }
}

// What the inputs that are there say of a symbol; the least extent where they say nothing.
int64_t States::extent_among(const Arguments &arguments, const tk_dim &dim) const {
  const DLTensor *given = arguments.inputs;
  for (size_t i = 0; i < model_.inputs.size(); ++i) {
    if (model_.is_past[i]) continue;
    const std::vector<tk_dim> &dims = model_.inputs[i].dims;
    const bool readable = given->ndim == static_cast<int32_t>(dims.size()) && given->shape != nullptr;
    for (size_t k = 0; readable && k < dims.size(); ++k)
      if (dims[k].symbol == dim.symbol) return given->shape[k];
    ++given;
  }
  return dim.min;
}

void States::empty(State *state, const Arguments &arguments) const {
  const std::vector<tk_dim> &dims = model_.inputs[static_cast<size_t>(state->input)].dims;
  for (size_t i = 0; i < dims.size(); ++i)
    state->shape[i] = dims[i].symbol < 0 ? dims[i].min : extent_among(arguments, dims[i]);
  state->shape[state->axis] = 0;
}

const DLTensor *States::complete(const Arguments &arguments) {
  given_ = states_.empty() || are_given(arguments.n_inputs);
  if (given_) return arguments.inputs;
  inputs_.clear();
  const DLTensor *next = arguments.inputs;
  for (size_t i = 0; i < model_.inputs.size(); ++i)
    inputs_.push_back(model_.is_past[i] ? DLTensor() : *next++);
  for (State &state : states_) {
    if (!kept_) empty(&state, arguments);
    const Tensor &own = model_.inputs[static_cast<size_t>(state.input)];
    inputs_[static_cast<size_t>(state.input)] = {
        elsewhere, {kDLCPU, 0}, static_cast<int32_t>(own.dims.size()), own.dtype, state.shape.data(), nullptr, 0};
  }
  return inputs_.data();
}

const std::vector<DLTensor *> &States::wanted(const Arguments &arguments) {
  const bool all = arguments.n_outputs == model_.n_results;
  outputs_.assign(static_cast<size_t>(model_.n_results), nullptr);
  DLTensor *next = arguments.outputs;
  for (size_t i = 0; i < outputs_.size(); ++i)
    if (all || !model_.is_present[i]) outputs_[i] = next++;
  return outputs_;
}

void States::begin(std::vector<Buffer> *inputs) {
  if (given_) kept_ = false;
  for (const State &state : states_)
    if (!given_) (*inputs)[static_cast<size_t>(state.input)] = {nullptr, 0, true};
}

void States::keep(const std::vector<int64_t> &symbols) {
  kept_ = !states_.empty();
  for (State &state : states_) {
    const tk_plan_tensor &present = *model_.outputs[static_cast<size_t>(state.output)].plan;
    for (size_t i = 0; i < state.shape.size(); ++i) state.shape[i] = extent_of(present.dims[i], symbols);
  }
}

tk_status States::cut(int64_t length) {
  for (const State &state : states_) {
    const int64_t there = kept_ ? state.shape[state.axis] : 0;
    if (length < 0 || length > there)
      return fail(TK_ERR_ARGUMENT, "the context has %lld places of '%s', of which it cannot keep %lld",
                  static_cast<long long>(there), model_.inputs[static_cast<size_t>(state.input)].name,
                  static_cast<long long>(length));
  }
  for (State &state : states_) state.shape[state.axis] = length;
  if (length == 0) kept_ = false;
  return TK_OK;
}

std::vector<unsigned char> first_places(const Box &box, const unsigned char *data, const DLTensor &past, int32_t axis) {
  std::vector<unsigned char> all(static_cast<size_t>(box.callers_bytes()));
  box.gather(all.data(), data);
  int64_t outer = 1, bytes = past.dtype.bits / 8;
  for (int32_t i = 0; i < axis; ++i) outer *= past.shape[i];
  for (int32_t i = axis; i < past.ndim; ++i) bytes *= past.shape[i];
  const int64_t there = outer == 0 ? 0 : static_cast<int64_t>(all.size()) / outer;
  for (int64_t i = 1; i < outer; ++i)
    std::memmove(all.data() + i * bytes, all.data() + i * there, static_cast<size_t>(bytes));
  all.resize(static_cast<size_t>(outer * bytes));
  return all;
}

}  // namespace tk
