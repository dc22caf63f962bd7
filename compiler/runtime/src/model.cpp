#include "model.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cpu_features.h"
#include "error.h"
#include "extents.h"
#include "memory.h"
#include "tk_blobs.h"

namespace tk {
namespace {

tk_status check_host(const tk_plan &plan) {
  char names[512];
  switch (check_features(plan.features, plan.n_features, names, sizeof names)) {
    case FeatureCheck::kUnknownOverride:
      return fail(TK_ERR_ARGUMENT, "TK_CPU_FEATURES: '%s' is not '-' and the name of a CPU feature", names);
    case FeatureCheck::kMissing:
      return fail(TK_ERR_HOST,
                  "this library needs CPU features that this machine lacks: %s; build one for this machine: "
                  "tk compile MODEL.onnx --target cpu --arch %s -o MODEL.so",
                  names, best_level());
    case FeatureCheck::kPresent:
      break;
  }
  if (enable_tiles(plan.features, plan.n_features)) return TK_OK;
  return fail(TK_ERR_HOST,
              "the operating system does not let this process use the tile registers (amx-tile); build a library "
              "without them: tk compile MODEL.onnx --target cpu --arch %s -o MODEL.so",
              best_level());
}

tk_status check_library(const tk_plan &plan) {
  if (plan.version != TK_PLAN_VERSION)
    return fail(TK_ERR_LIBRARY, "the kernels were generated for version %d of the runtime, this is version %d",
                plan.version, TK_PLAN_VERSION);
  if (plan.constants_bytes != tk_blobs_model.constants_bytes)
    return fail(TK_ERR_LIBRARY, "the kernels expect %lld bytes of constants, the library holds %lld",
                static_cast<long long>(plan.constants_bytes),
                static_cast<long long>(tk_blobs_model.constants_bytes));
  return TK_OK;
}

// Dimensions that follow from symbols; each that is another one has a number, behind those of the symbols.
class Derived {
 public:
  explicit Derived(const tk_plan &plan) : plan_(plan) {}

  int32_t number_of(const tk_plan_dim &dim) {
    for (size_t i = 0; i < found_.size(); ++i)
      if (same(*found_[i], dim)) return plan_.n_symbols + static_cast<int32_t>(i);
    found_.push_back(&dim);
    return plan_.n_symbols + static_cast<int32_t>(found_.size()) - 1;
  }

 private:
  bool same(const tk_plan_dim &a, const tk_plan_dim &b) const {
    if (a.offset != b.offset || a.divisor != b.divisor) return false;
    return std::equal(a.factors, a.factors + plan_.n_symbols, b.factors);
  }

  const tk_plan &plan_;
  std::vector<const tk_plan_dim *> found_;
};

// A dimension as callers see it.
bool fill_dim(const tk_plan &plan, const tk_plan_dim &dim, Derived *derived, tk_dim *to) {
  *to = {dim.extent, dim.extent, 1, -1, 0};
  if (dim.factors != nullptr) {
    if (!range_of(plan, dim, &to->min, &to->max)) return false;
    to->symbol = symbol_of(dim, plan.n_symbols);
    to->counted = is_counted(plan, dim);
    if (to->symbol >= 0) to->divisor = plan.symbols[to->symbol].divisor;
    if (to->symbol < 0) to->symbol = derived->number_of(dim);
    if (dim.extent >= 0 && to->max > dim.extent) return false;
    to->min = std::max<int64_t>(to->min, 0);  // a run that asks for less is refused
  }
  return to->min >= 0 && to->max >= to->min && to->divisor >= 1;
}

bool fill_dims(const tk_plan &plan, const tk_plan_tensor &from, Derived *derived, Tensor *to) {
  int64_t bound = 1;  // elements in our memory
  to->max_elements = 1;
  for (int32_t i = 0; i < from.rank; ++i) {
    const tk_plan_dim &dim = from.dims[i];
    tk_dim out;
    if (!fill_dim(plan, dim, derived, &out)) return false;
    if (dim.factors != nullptr && dim.extent >= 0 && from.dtype_bits % 8 != 0) return false;
    to->max_elements = checked_product(to->max_elements, out.max);
    bound = checked_product(bound, dim.extent < 0 ? out.max : dim.extent);
    to->dims.push_back(out);
  }
  // Room for the bit count, so that Tensor::bytes cannot overflow.
  return checked_product(to->max_elements, 4096) >= 0 && checked_product(bound, 4096) >= 0;
}

class Names {
 public:
  // The next name, or null at the end of the table.
  const char *next() {
    if (at_ >= end_) return nullptr;
    const char *name = at_;
    at_ += std::strlen(at_) + 1;
    return name;
  }

 private:
  const char *at_ = static_cast<const char *>(tk_blob(tk_blobs_model.names));
  const char *end_ = at_ + tk_blobs_model.names_bytes;
};

bool fill_tensors(const tk_plan &plan, const tk_plan_tensor *from, int32_t count, const char *role, Names *names,
                  Derived *derived, std::vector<Tensor> *to) {
  for (int32_t i = 0; i < count; ++i) {
    Tensor tensor;
    tensor.name = names->next();
    tensor.role = role;
    tensor.plan = &from[i];
    tensor.dtype = {from[i].dtype_code, from[i].dtype_bits, from[i].dtype_lanes};
    if (tensor.name == nullptr || tensor.dtype.bits == 0 || tensor.dtype.lanes == 0) return false;
    if (!fill_dims(plan, from[i], derived, &tensor)) return false;
    to->push_back(tensor);
  }
  return true;
}

// A state's input and output are alike but for the axis along which it grows, and whole bytes.
bool fill_states(const tk_plan &plan, tk_model *model) {
  model->is_past.assign(model->inputs.size(), false);
  model->is_present.assign(model->outputs.size(), false);
  for (int64_t i = 0; i < plan.n_states; ++i) {
    const tk_state &state = plan.states[i];
    if (state.input < 0 || state.input >= static_cast<int32_t>(model->inputs.size())) return false;
    if (state.output < 0 || state.output >= model->n_results) return false;
    const tk_plan_tensor &past = plan.inputs[state.input], &present = plan.outputs[state.output];
    if (past.rank != present.rank || state.axis < 0 || state.axis >= past.rank || past.dtype_bits % 8 != 0) return false;
    if (past.dtype_bits != present.dtype_bits || symbol_of(past.dims[state.axis], plan.n_symbols) < 0) return false;
    model->states.push_back(state);
    model->is_past[static_cast<size_t>(state.input)] = true;
    model->is_present[static_cast<size_t>(state.output)] = true;
  }
  return true;
}

// Starts reading the constants ahead: the first inference then rarely waits for the disk.
void read_ahead() {
  constexpr uintptr_t kPage = 4096;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(tk_blob(tk_blobs_model.constants));
  const uintptr_t end = begin + static_cast<uintptr_t>(tk_blobs_model.constants_bytes);
  const uintptr_t start = begin & ~(kPage - 1);
  if (end > begin) madvise(reinterpret_cast<void *>(start), end - start, MADV_WILLNEED);
}

const char *text_at(int64_t place) { return static_cast<const char *>(tk_blob(place)); }

tk_status open_device(const tk_device_plan &plan, const char *selector, tk_model *model) {
  const tk_blob_image *table = static_cast<const tk_blob_image *>(tk_blob(tk_blobs_model.images));
  std::vector<Image> images;
  for (int64_t i = 0; i < tk_blobs_model.n_images; ++i)
    images.push_back({text_at(table[i].kind), text_at(table[i].arch),
                      static_cast<const unsigned char *>(tk_blob(table[i].data)), table[i].data_bytes});
  const Program program = {plan.target, images.data(), static_cast<int32_t>(images.size()), plan.functions,
                           plan.n_functions};
  if (selector == nullptr) selector = std::getenv("TK_DEVICE");
  Device *device = nullptr;
  if (const tk_status status = open_native_device(program, selector == nullptr ? "" : selector, &device)) return status;
  model->device.reset(device);
  return TK_OK;
}

tk_status upload_constants(tk_model *model) {
  const int64_t bytes = tk_blobs_model.constants_bytes;
  if (bytes == 0) return TK_OK;
  if (const tk_status status = model->device->allocate(bytes, &model->device_constants)) return status;
  Queue *opened = nullptr;
  if (const tk_status status = model->device->open_queue({nullptr, false}, &opened)) return status;
  const std::unique_ptr<Queue> queue(opened);
  if (const tk_status status = queue->upload(model->device_constants, tk_blob(tk_blobs_model.constants), bytes))
    return status;
  return queue->finish();
}

// What a plan says of its tensors.
tk_status describe_plan(const tk_plan &plan, Names *names, tk_model *model) {
  model->plan = &plan;
  Derived derived(plan);
  const int32_t operands = plan.n_inputs - plan.n_sizes;
  const bool sizes_fit = plan.n_sizes >= 0 && plan.first_size >= 0 && plan.n_counts >= 0 &&
                         plan.first_size + plan.n_sizes + plan.n_counts <= plan.n_symbols && plan.n_checks >= 0 &&
                         plan.n_counts + plan.n_checks <= plan.n_outputs;
  if (!sizes_fit || !fill_tensors(plan, plan.inputs, operands, "input", names, &derived, &model->inputs) ||
      !fill_tensors(plan, plan.outputs, plan.n_outputs, "output", names, &derived, &model->outputs))
    return fail(TK_ERR_LIBRARY, "the description of the inputs and outputs is damaged");
  for (int32_t i = 0; i < plan.n_symbols; ++i) {
    const char *name = names->next();
    model->symbols.push_back(name == nullptr ? "" : name);
  }
  model->n_results = plan.n_outputs - plan.n_counts - static_cast<int32_t>(plan.n_checks);
  return fill_states(plan, model) ? TK_OK : fail(TK_ERR_LIBRARY, "the description of the states is damaged");
}

// Whether a specialised model has the operands and results of the general one.
bool is_alike(const tk_model &general, const tk_model &own) {
  return own.inputs.size() == general.inputs.size() && own.n_results == general.n_results &&
         (own.plan->device == nullptr) == (general.plan->device == nullptr);
}

}  // namespace

tk_status describe(const tk_plan &plan, const char *selector, tk_model *model) {
  if (const tk_status status = check_library(plan)) return status;
  if (const tk_status status = check_host(plan)) return status;
  Names names;
  if (const tk_status status = describe_plan(plan, &names, model)) return status;
  for (int32_t i = 0; i < plan.n_specialisations; ++i) {
    model->specialised.emplace_back(new tk_model());
    tk_model *own = model->specialised.back().get();
    own->ranges = plan.specialisations[i].ranges;
    if (const tk_status status = describe_plan(*plan.specialisations[i].plan, &names, own)) return status;
    if (!is_alike(*model, *own)) return fail(TK_ERR_LIBRARY, "the kernels for some sizes are those of another model");
  }
  read_ahead();
  if (plan.device == nullptr) return TK_OK;
  if (const tk_status status = open_device(*plan.device, selector, model)) return status;
  if (const tk_status status = upload_constants(model)) return status;
  for (const std::unique_ptr<tk_model> &own : model->specialised) {
    own->device = model->device;
    own->device_constants = model->device_constants;
  }
  return TK_OK;
}

}  // namespace tk

size_t tk_model::specialised_for(const std::vector<int64_t> &symbols) const {
  size_t found = 0;
  for (; found < specialised.size(); ++found) {
    const tk_symbol *ranges_of_it = specialised[found]->ranges;
    bool holds = true;
    for (size_t i = 0; i < symbols.size(); ++i)
      holds = holds && symbols[i] >= ranges_of_it[i].min && symbols[i] <= ranges_of_it[i].max;
    if (holds) break;
  }
  return found;
}

tk_model::~tk_model() {
  if (device != nullptr && ranges == nullptr) device->release(device_constants);
}
