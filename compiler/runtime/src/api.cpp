// The exported functions of tk_model.h: they check the call itself and let no exception out.
#include <cstdio>
#include <cstring>
#include <new>

#include "binding.h"
#include "context.h"
#include "error.h"
#include "model.h"
#include "tk_blobs.h"
#include "tk_model.h"
#include "tk_plan.h"

#define TK_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

using tk::fail;

// The functions that the table and the exported names share: internal, so that the names of another model
// in the process cannot take their place.

template <typename Body>
tk_status guarded(Body body) {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return fail(TK_ERR_MEMORY, "not enough memory");
  }
}

tk_status missing(const char *function, const char *argument) {
  return fail(TK_ERR_ARGUMENT, "%s: %s is null", function, argument);
}

tk_status model_open_on(const char *device, tk_model **model) {
  if (model == nullptr) return missing("tk_model_open", "model");
  *model = nullptr;
  return guarded([device, model] {
    tk_model *opened = new tk_model();
    const tk_status status = tk::describe(tk_plan_model, device, opened);
    if (status == TK_OK)
      *model = opened;
    else
      delete opened;
    return status;
  });
}

tk_status model_open(tk_model **model) { return model_open_on(nullptr, model); }

void model_close(tk_model *model) { delete model; }

const char *model_device(const tk_model *model) {
  return model == nullptr || model->device == nullptr ? "" : model->device->describe();
}

void *model_native_context(const tk_model *model) {
  return model == nullptr || model->device == nullptr ? nullptr : model->device->native_context();
}

int32_t model_input_count(const tk_model *model) {
  return model == nullptr ? 0 : static_cast<int32_t>(model->inputs.size());
}

int32_t model_output_count(const tk_model *model) {
  return model == nullptr ? 0 : model->n_results;
}

tk_status tensor_info(const std::vector<tk::Tensor> &tensors, int32_t count, const char *role, int32_t index,
                      tk_tensor_info *info) {
  if (info == nullptr) return missing("tk_model_input/output", "info");
  if (index < 0 || index >= count)
    return fail(TK_ERR_ARGUMENT, "there is no %s %d: the model has %d", role, index, count);
  const tk::Tensor &tensor = tensors[static_cast<size_t>(index)];
  *info = {tensor.name, tensor.dtype, static_cast<int32_t>(tensor.dims.size()), tensor.dims.data(),
           tensor.bytes(tensor.max_elements)};
  return TK_OK;
}

tk_status model_input(const tk_model *model, int32_t index, tk_tensor_info *info) {
  if (model == nullptr) return missing("tk_model_input", "model");
  return tensor_info(model->inputs, model_input_count(model), "input", index, info);
}

tk_status model_output(const tk_model *model, int32_t index, tk_tensor_info *info) {
  if (model == nullptr) return missing("tk_model_output", "model");
  return tensor_info(model->outputs, model_output_count(model), "output", index, info);
}

tk_status check_counts(const char *function, const tk_model &model, const DLTensor *inputs, int32_t n_inputs,
                       const DLTensor *outputs, int32_t n_outputs, bool may_leave_out) {
  const int32_t want_inputs = model_input_count(&model);
  const int32_t want_outputs = model_output_count(&model);
  const int32_t states = may_leave_out ? static_cast<int32_t>(model.states.size()) : 0;
  char without[64] = "";
  if (states > 0) std::snprintf(without, sizeof without, ", %d of which are states, which may be left out", states);
  if (n_inputs != want_inputs && n_inputs != want_inputs - states)
    return fail(TK_ERR_INPUT, "got %d inputs, the model has %d%s", n_inputs, want_inputs, without);
  if (n_outputs != want_outputs && n_outputs != want_outputs - states)
    return fail(TK_ERR_OUTPUT, "got %d outputs, the model has %d%s", n_outputs, want_outputs, without);
  if (inputs == nullptr && n_inputs > 0) return missing(function, "inputs");
  if (outputs == nullptr && n_outputs > 0) return missing(function, "outputs");
  return TK_OK;
}

tk_status model_shapes(const tk_model *model, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                       int32_t n_outputs) {
  if (model == nullptr) return missing("tk_model_shapes", "model");
  if (const tk_status status = check_counts("tk_model_shapes", *model, inputs, n_inputs, outputs, n_outputs, false))
    return status;
  return guarded([=] {
    std::vector<int64_t> symbols;
    std::vector<DLTensor *> wanted;
    for (int32_t i = 0; i < n_outputs; ++i) wanted.push_back(outputs + i);
    const tk_status status = tk::bind_symbols(*model, inputs, &symbols);
    return status != TK_OK ? status : tk::write_shapes(*model, symbols, wanted);
  });
}

int32_t model_state_count(const tk_model *model) {
  return model == nullptr ? 0 : static_cast<int32_t>(model->states.size());
}

tk_status model_state(const tk_model *model, int32_t index, tk_state_info *info) {
  if (model == nullptr) return missing("tk_model_state", "model");
  if (info == nullptr) return missing("tk_model_state", "info");
  if (index < 0 || index >= model_state_count(model))
    return fail(TK_ERR_ARGUMENT, "there is no state %d: the model has %d", index, model_state_count(model));
  const tk_state &state = model->states[static_cast<size_t>(index)];
  *info = {state.input, state.output, state.axis, 0};
  return TK_OK;
}

const char *model_manifest(size_t *bytes) {
  if (bytes != nullptr) *bytes = static_cast<size_t>(tk_blobs_model.manifest_bytes);
  return static_cast<const char *>(tk_blob(tk_blobs_model.manifest));
}

tk_status read_options(const tk_model &model, const tk_context_options *given, tk_context_options *options) {
  *options = {sizeof *options, 0, 0, nullptr};
  if (given == nullptr) return TK_OK;
  if (given->struct_size < sizeof(size_t) || given->struct_size > sizeof *options)
    return fail(TK_ERR_ARGUMENT, "tk_context_open: options.struct_size is %zu, this library knows up to %zu",
                given->struct_size, sizeof *options);
  std::memcpy(options, given, given->struct_size);
  constexpr uint32_t kFlags = TK_CONTEXT_FLUSH_SUBNORMALS | TK_CONTEXT_CALLERS_STREAM;
  if ((options->flags & ~kFlags) != 0)
    return fail(TK_ERR_ARGUMENT, "tk_context_open: unknown bits in options.flags: 0x%x", options->flags);
  if (options->stream != nullptr && model.device == nullptr)
    return fail(TK_ERR_ARGUMENT, "tk_context_open: options.stream must be null, this library runs on the CPU");
  if ((options->flags & TK_CONTEXT_CALLERS_STREAM) != 0 && options->stream == nullptr &&
      (model.device == nullptr || !model.device->has_default_stream()))
    return fail(TK_ERR_ARGUMENT,
                "tk_context_open: options.stream is null, and there is no default stream here; hand over a queue, or "
                "leave TK_CONTEXT_CALLERS_STREAM out");
  return TK_OK;
}

tk_status context_open(const tk_model *model, const tk_context_options *given, tk_context **context) {
  if (model == nullptr) return missing("tk_context_open", "model");
  if (context == nullptr) return missing("tk_context_open", "context");
  *context = nullptr;
  tk_context_options options;
  if (const tk_status status = read_options(*model, given, &options)) return status;
  return guarded([&] {
    tk_context *opened = new tk_context(*model, options);
    tk_status status = TK_ERR_MEMORY;
    try {
      status = opened->prepare();
    } catch (...) {
      delete opened;
      throw;
    }
    if (status == TK_OK)
      *context = opened;
    else
      delete opened;
    return status;
  });
}

void context_close(tk_context *context) { delete context; }

// Calls body while the context is marked busy.
template <typename Body>
tk_status exclusively(tk_context *context, Body body) {
  if (context->busy.exchange(true, std::memory_order_acquire))
    return fail(TK_ERR_BUSY, "the context is running in another thread; open one context per thread");
  const tk_status status = guarded(body);
  context->busy.store(false, std::memory_order_release);
  return status;
}

tk_status context_set_threads(tk_context *context, int32_t threads) {
  if (context == nullptr) return missing("tk_context_set_threads", "context");
  return exclusively(context, [=] { return context->set_threads(threads); });
}

int32_t context_threads(const tk_context *context) { return context == nullptr ? 0 : context->threads(); }

tk_status run(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs, int32_t n_outputs,
              const tk::Timing &timing) {
  if (context == nullptr) return missing("tk_context_run", "context");
  const tk_model &model = context->model();
  if (const tk_status status = check_counts("tk_context_run", model, inputs, n_inputs, outputs, n_outputs, true))
    return status;
  return exclusively(context, [=] { return context->run({inputs, n_inputs, outputs, n_outputs}, timing); });
}

tk_status context_shapes(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                         int32_t n_outputs) {
  if (context == nullptr) return missing("tk_context_shapes", "context");
  const tk_model &model = context->model();
  if (const tk_status status = check_counts("tk_context_shapes", model, inputs, n_inputs, outputs, n_outputs, true))
    return status;
  return exclusively(context, [=] { return context->shapes({inputs, n_inputs, outputs, n_outputs}); });
}

tk_status context_reset(tk_context *context, int64_t length) {
  if (context == nullptr) return missing("tk_context_reset", "context");
  return exclusively(context, [=] { return context->reset(length); });
}

tk_status context_run(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                      int32_t n_outputs) {
  return run(context, inputs, n_inputs, outputs, n_outputs, {});
}

tk_status context_profile(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                          int32_t n_outputs, tk_step_time *times, int32_t *count) {
  if (context == nullptr) return missing("tk_context_profile", "context");
  if (count == nullptr) return missing("tk_context_profile", "count");
  const int32_t room = *count;
  const int32_t steps = context->most_steps();
  *count = steps;
  if (times == nullptr) return TK_OK;
  if (room < steps)
    return fail(TK_ERR_ARGUMENT, "tk_context_profile: room for %d times, the model has %d steps", room, steps);
  const tk_status status = run(context, inputs, n_inputs, outputs, n_outputs, {times, nullptr});
  if (status == TK_OK) *count = context->steps_run();
  return status;
}

tk_status context_measure(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                          int32_t n_outputs, tk_run_times *times) {
  if (times == nullptr) return missing("tk_context_measure", "times");
  if (times->struct_size < sizeof(tk_run_times))
    return fail(TK_ERR_ARGUMENT, "tk_context_measure: set struct_size to sizeof(tk_run_times)");
  return run(context, inputs, n_inputs, outputs, n_outputs, {nullptr, times});
}

const char *last_error() { return tk::last_error(); }
const char *status_text(tk_status status) { return tk::status_text(status); }

}  // namespace

TK_EXPORT tk_status tk_model_open_v1(tk_model **model) { return model_open(model); }
TK_EXPORT tk_status tk_model_open_on_v1(const char *device, tk_model **model) { return model_open_on(device, model); }
TK_EXPORT void tk_model_close_v1(tk_model *model) { model_close(model); }
TK_EXPORT const char *tk_model_device_v1(const tk_model *model) { return model_device(model); }
TK_EXPORT void *tk_model_native_context_v1(const tk_model *model) { return model_native_context(model); }
TK_EXPORT int32_t tk_model_input_count_v1(const tk_model *model) { return model_input_count(model); }
TK_EXPORT int32_t tk_model_output_count_v1(const tk_model *model) { return model_output_count(model); }
TK_EXPORT tk_status tk_model_input_v1(const tk_model *model, int32_t index, tk_tensor_info *info) {
  return model_input(model, index, info);
}
TK_EXPORT tk_status tk_model_output_v1(const tk_model *model, int32_t index, tk_tensor_info *info) {
  return model_output(model, index, info);
}
TK_EXPORT tk_status tk_model_shapes_v1(const tk_model *model, const DLTensor *inputs, int32_t n_inputs,
                                       DLTensor *outputs, int32_t n_outputs) {
  return model_shapes(model, inputs, n_inputs, outputs, n_outputs);
}
TK_EXPORT const char *tk_model_manifest_v1(size_t *bytes) { return model_manifest(bytes); }
TK_EXPORT tk_status tk_context_open_v1(const tk_model *model, const tk_context_options *options, tk_context **context) {
  return context_open(model, options, context);
}
TK_EXPORT void tk_context_close_v1(tk_context *context) { context_close(context); }
TK_EXPORT tk_status tk_context_set_threads_v1(tk_context *context, int32_t threads) {
  return context_set_threads(context, threads);
}
TK_EXPORT int32_t tk_context_threads_v1(const tk_context *context) { return context_threads(context); }
TK_EXPORT tk_status tk_context_run_v1(tk_context *context, const DLTensor *inputs, int32_t n_inputs, DLTensor *outputs,
                                      int32_t n_outputs) {
  return context_run(context, inputs, n_inputs, outputs, n_outputs);
}
TK_EXPORT tk_status tk_context_profile_v1(tk_context *context, const DLTensor *inputs, int32_t n_inputs,
                                          DLTensor *outputs, int32_t n_outputs, tk_step_time *times, int32_t *count) {
  return context_profile(context, inputs, n_inputs, outputs, n_outputs, times, count);
}
TK_EXPORT int32_t tk_model_state_count_v1(const tk_model *model) { return model_state_count(model); }
TK_EXPORT tk_status tk_model_state_v1(const tk_model *model, int32_t index, tk_state_info *info) {
  return model_state(model, index, info);
}
TK_EXPORT tk_status tk_context_shapes_v1(tk_context *context, const DLTensor *inputs, int32_t n_inputs,
                                         DLTensor *outputs, int32_t n_outputs) {
  return context_shapes(context, inputs, n_inputs, outputs, n_outputs);
}
TK_EXPORT tk_status tk_context_reset_v1(tk_context *context, int64_t length) { return context_reset(context, length); }
TK_EXPORT tk_status tk_context_measure_v1(tk_context *context, const DLTensor *inputs, int32_t n_inputs,
                                          DLTensor *outputs, int32_t n_outputs, tk_run_times *times) {
  return context_measure(context, inputs, n_inputs, outputs, n_outputs, times);
}
TK_EXPORT const char *tk_last_error_v1(void) { return last_error(); }
TK_EXPORT const char *tk_status_text_v1(tk_status status) { return status_text(status); }

TK_EXPORT const tk_model_api tk_model_api_v1 = {
    sizeof(tk_model_api), model_open,        model_close,         model_input_count, model_output_count,
    model_input,          model_output,      model_manifest,      context_open,      context_close,
    context_set_threads,  context_threads,   context_run,         context_profile,   last_error,
    status_text,          model_open_on,     model_device,        model_native_context,
    model_shapes,         model_state_count, model_state,         context_shapes,    context_reset,
    context_measure,
};
