#include "context.h"

#include <time.h>

#include <cstring>

#include "error.h"
#include "float_mode.h"
#include "tk_blobs.h"

namespace {

constexpr int32_t kMaxThreads = 1024;
constexpr int64_t kPage = 4096;

int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

tk::Stream stream_of(const tk_context_options &options) {
  return {options.stream, options.stream != nullptr || (options.flags & TK_CONTEXT_CALLERS_STREAM) != 0};
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

// Memory of one tensor with its largest extents; it grows with the samples of a batch.
tk_status make_room(tk::Mapping *room, const tk::Box &box, const tk::Tensor &tensor) {
  if (room->data() != nullptr && room->bytes() >= box.bytes()) return TK_OK;
  if (room->allocate(box.bytes())) return TK_OK;
  return tk::fail(TK_ERR_MEMORY, "no memory for %s '%s' with its largest extents (%lld bytes)", tensor.role,
                  tensor.name, static_cast<long long>(box.bytes()));
}

}  // namespace

tk_context::tk_context(const tk_model &model, const tk_context_options &options, tk_context *general)
    : model_(model),
      options_(options),
      general_(general),
      default_threads_(general == nullptr ? model.plan->threads : general->default_threads_),
      memory_(general == nullptr ? std::make_shared<Memory>() : general->memory_),
      arena_(memory_->arena),
      scratch_(memory_->scratch),
      staging_(memory_->staging),
      states_(model) {
  if (default_threads_ <= 0) default_threads_ = tk::usable_processors();
  if (default_threads_ > kMaxThreads) default_threads_ = kMaxThreads;
}

tk_status tk_context::prepare() {
  const tk_plan &plan = *model_.plan;
  owned_ = std::vector<tk::Mapping>(model_.outputs.size());
  std::vector<const tk_plan_tensor *> extended(model_.inputs.size(), nullptr);
  for (const tk_state &one : model_.states)
    extended[static_cast<size_t>(one.input)] = model_.outputs[static_cast<size_t>(one.output)].plan;
  for (size_t i = 0; i < model_.inputs.size(); ++i) {
    const tk_plan_tensor &own = *model_.inputs[i].plan;
    input_boxes_.emplace_back(plan, own, extended[i] != nullptr ? *extended[i] : own, extended[i] != nullptr);
  }
  for (size_t i = 0; i < model_.outputs.size(); ++i)
    output_boxes_.emplace_back(plan, *model_.outputs[i].plan, *model_.outputs[i].plan, model_.is_present[i]);
  if (const tk_status status = prepare_memory()) return status;
  return prepare_specialised();
}

tk_status tk_context::prepare_memory() {
  if (model_.device != nullptr) {
    const tk::DeviceContext *general = general_ == nullptr ? nullptr : general_->device_.get();
    return tk::DeviceContext::open(model_, stream_of(options_), general, &device_);
  }
  const int64_t needed = model_.most(&tk_plan::arena_bytes);
  if (general_ == nullptr && !arena_.allocate(needed))
    return tk::fail(TK_ERR_MEMORY, "no memory for the intermediate results (%lld bytes)",
                    static_cast<long long>(needed));
  targets_.assign(model_.outputs.size(), nullptr);
  staged_inputs_ = std::vector<tk::Mapping>(model_.inputs.size());
  staged_outputs_ = std::vector<tk::Mapping>(model_.outputs.size());
  resolve_fixed();
  find_lifetimes();
  return set_threads(options_.threads);
}

tk_status tk_context::prepare_specialised() {
  for (const std::unique_ptr<tk_model> &own : model_.specialised) {
    specialised_.emplace_back(new tk_context(*own, options_, this));
    if (const tk_status status = specialised_.back()->prepare()) return status;
  }
  return TK_OK;
}

tk_status tk_context::set_threads(int32_t threads) {
  if (threads < 0 || threads > kMaxThreads)
    return tk::fail(TK_ERR_ARGUMENT, "%d threads: expected 0 (the default) to %d", threads, kMaxThreads);
  if (device_ != nullptr) return TK_OK;  // the device has its own
  const int32_t count = threads == 0 ? default_threads_ : threads;
  if (count > 1 && tk::tk_pool_v1.reserve(count - 1) < count - 1)
    return tk::fail(TK_ERR_MEMORY, "the system does not start %d threads", count);
  // One part for each thread's bodies, one for the code between them.
  const int64_t stride = round_up(model_.plan->scratch_bytes, kPage);
  if (scratch_.data() == nullptr || scratch_.bytes() < stride * (count + 1))
    if (!scratch_.allocate(stride * (count + 1)))
      return tk::fail(TK_ERR_MEMORY, "no memory for the scratch of %d threads (%lld bytes each)", count,
                      static_cast<long long>(stride));
  scratch_stride_ = stride;
  threads_ = count;
  workers_.resize(static_cast<size_t>(count) - 1);
  for (const std::unique_ptr<tk_context> &one : specialised_)
    if (const tk_status status = one->set_threads(threads)) return status;
  return TK_OK;
}

int32_t tk_context::most_steps() const { return model_.most(&tk_plan::n_steps); }

void tk_context::resolve_fixed() {
  const tk_plan &plan = *model_.plan;
  resolved_in_ = arena_.data();
  pointers_.assign(static_cast<size_t>(plan.n_args), nullptr);
  open_inputs_.clear();
  open_outputs_.clear();
  for (size_t i = 0; i < pointers_.size(); ++i) {
    const tk_arg &arg = plan.args[i];
    switch (arg.kind) {
      case TK_ARG_INPUT:
        open_inputs_.push_back({i, arg.index, arg.offset});
        break;
      case TK_ARG_OUTPUT:
        open_outputs_.push_back({i, arg.index, arg.offset});
        break;
      case TK_ARG_CONST:
        pointers_[i] = const_cast<void *>(tk_blob(tk_blobs_model.constants + arg.offset));
        break;
      default:
        pointers_[i] = arena_.data() + arg.offset + samples_ * arg.sample_offset;
        break;
    }
  }
}

tk_status tk_context::place_samples() {
  const tk_plan &plan = *model_.plan;
  const int64_t samples = plan.sample_bytes == 0 ? 0 : symbols_[0];
  if (samples == samples_ && arena_.data() == resolved_in_) return TK_OK;
  const int64_t all = tk::checked_product(plan.sample_bytes, samples);
  const int64_t needed = all < 0 ? all : plan.arena_bytes + all;
  if (arena_.bytes() < needed || all < 0) {
    samples_ = 0;  // until there is memory again
    if (!arena_.allocate(needed))
      return tk::fail(TK_ERR_MEMORY, "no memory for the intermediate results of %lld samples (%lld bytes each)",
                      static_cast<long long>(samples), static_cast<long long>(plan.sample_bytes));
  }
  samples_ = samples;
  resolve_fixed();
  return TK_OK;
}

void tk_context::find_lifetimes() {
  const tk_plan &plan = *model_.plan;
  last_use_.assign(static_cast<size_t>(plan.n_inputs), -1);
  first_write_.assign(model_.outputs.size(), plan.n_steps);
  for (int32_t step = plan.n_steps - 1; step >= 0; --step) {
    const tk_arg *args = plan.args + plan.steps[step].first_arg;
    const int32_t count = plan.steps[step].n_args + (plan.steps[step].guard != 0 ? 1 : 0);
    for (int32_t i = 0; i < count; ++i) {
      const size_t index = static_cast<size_t>(args[i].index);
      if (args[i].kind == TK_ARG_INPUT && last_use_[index] < step) last_use_[index] = step;
      if (args[i].kind == TK_ARG_OUTPUT) first_write_[index] = step;
    }
  }
}

bool tk_context::overlaps_live_input(size_t output) const {
  for (size_t input = 0; input < inputs_.size(); ++input)
    if (last_use_[input] >= first_write_[output] && inputs_[input].overlaps(outputs_[output])) return true;
  return false;
}

tk_status tk_context::stage_inputs() {
  for (size_t i = 0; i < input_boxes_.size(); ++i) {
    const tk::Box &box = input_boxes_[i];
    if (!box.is_part() || model_.is_past[i]) continue;
    if (const tk_status status = make_room(&staged_inputs_[i], box, model_.inputs[i])) return status;
    box.spread(staged_inputs_[i].data(), inputs_[i].data);
    inputs_[i].data = staged_inputs_[i].data();
    inputs_[i].bytes = box.bytes();
  }
  return TK_OK;
}

tk_status tk_context::stage_outputs() {
  int64_t needed = 0;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const tk::Box &box = output_boxes_[i];
    targets_[i] = box.is_part() || overlaps_live_input(i) ? outputs_[i].data : nullptr;
    if (box.is_part()) {
      if (const tk_status status = make_room(&staged_outputs_[i], box, model_.outputs[i])) return status;
      outputs_[i].data = staged_outputs_[i].data();
    } else if (targets_[i] != nullptr) {
      needed += round_up(outputs_[i].bytes, kPage);
    }
  }
  return needed == 0 ? TK_OK : stage_overlapping(needed);
}

tk_status tk_context::stage_overlapping(int64_t needed) {
  if (staging_.bytes() < needed && !staging_.allocate(needed))
    return tk::fail(TK_ERR_MEMORY, "no memory for outputs that share memory with inputs (%lld bytes)",
                    static_cast<long long>(needed));
  unsigned char *at = staging_.data();
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (targets_[i] == nullptr || output_boxes_[i].is_part()) continue;
    outputs_[i].data = at;
    at += round_up(outputs_[i].bytes, kPage);
  }
  return TK_OK;
}

void tk_context::place_states() {
  for (const tk_state &state : model_.states) {
    tk::Buffer *past = &inputs_[static_cast<size_t>(state.input)];
    unsigned char *const own = outputs_[static_cast<size_t>(state.output)].data;
    if (past->data != nullptr) input_boxes_[static_cast<size_t>(state.input)].spread(own, past->data);
    past->data = own;
  }
}

void tk_context::hand_over() {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (targets_[i] == nullptr) continue;
    if (output_boxes_[i].is_part())
      output_boxes_[i].gather(targets_[i], outputs_[i].data);
    else
      std::memcpy(targets_[i], outputs_[i].data, static_cast<size_t>(outputs_[i].bytes));
  }
}

void tk_context::resolve_open(const std::vector<OpenArg> &open, const std::vector<tk::Buffer> &buffers) {
  for (const OpenArg &arg : open) {
    unsigned char *data = buffers[static_cast<size_t>(arg.index)].data;
    pointers_[arg.position] = data == nullptr ? nullptr : data + arg.offset;
  }
}

bool tk_context::is_needed(const tk_step &step) const {
  if (step.guard == 0) return true;
  const tk_guard &guard = model_.plan->guards[step.guard - 1];
  const auto *values = static_cast<const unsigned char *>(pointers_[static_cast<size_t>(step.first_arg + step.n_args)]);
  const int64_t samples = guard.sample_stride == 0 ? 1 : symbols_[0];
  for (int64_t sample = 0; sample < samples; ++sample, values += guard.sample_stride)
    for (int32_t i = 0; i < guard.elements; ++i)
      if ((values[i] != 0) == (guard.expected != 0)) return true;
  return false;
}

void tk_context::execute(tk_step_time *times) {
  const tk_plan &plan = *model_.plan;
  const bool flush = (options_.flags & TK_CONTEXT_FLUSH_SUBNORMALS) != 0;
  const tk::FloatScope float_scope(flush);
  tk_exec exec;
  exec.team.workers = workers_.data();
  exec.team.n_workers = threads_ > 1 ? tk::tk_pool_v1.acquire(threads_ - 1, workers_.data()) : 0;
  exec.team.mode = flush ? tk::kFlushSubnormals : 0;
  exec.team.scratch = scratch_.data();
  exec.team.scratch_stride = scratch_stride_;
  exec.threads = threads_;
  exec.kernel_scratch = scratch_.data() + threads_ * scratch_stride_;
  exec.symbols = symbols_.data();
  int64_t before = times != nullptr ? now_ns() : 0;
  for (int32_t i = 0; i < plan.n_steps; ++i) {
    const tk_step &step = plan.steps[i];
    if (is_needed(step)) step.fn(pointers_.data() + step.first_arg, &exec);
    if (times == nullptr) continue;
    const int64_t after = now_ns();
    times[i] = {step.kernel, 0, after - before};
    before = after;
  }
  if (exec.team.n_workers > 0) tk::tk_pool_v1.release(exec.team.n_workers, workers_.data());
}

tk_context *tk_context::for_symbols(const std::vector<int64_t> &symbols) {
  const size_t number = model_.specialised_for(symbols);
  return number < specialised_.size() ? specialised_[number].get() : this;
}

tk_status tk_context::shapes(const tk::Arguments &arguments) {
  const DLTensor *inputs = ran_->states_.complete(arguments);
  if (const tk_status status = tk::bind_symbols(model_, inputs, &symbols_)) return status;
  return tk::write_shapes(model_, symbols_, ran_->states_.wanted(arguments));
}

tk_status tk_context::run(const tk::Arguments &arguments, const tk::Timing &timing) {
  if (specialised_.empty()) return run_alone(arguments, timing);
  const DLTensor *inputs = ran_->states_.complete(arguments);
  if (const tk_status status = tk::bind_symbols(model_, inputs, &symbols_)) return status;
  tk_context *const chosen = for_symbols(symbols_);
  tk::Arguments own = arguments;
  if (chosen != ran_) {
    chosen->states_.forget();  // what it kept was before
    // The plans have memory of their own for states, in strides of their own.
    if (ran_->states_.has_kept(arguments)) {
      own.inputs = ran_->take_states(inputs);
      own.n_inputs = static_cast<int32_t>(model_.inputs.size());
    }
  }
  if (const tk_status status = chosen->run_alone(own, timing)) return status;
  ran_ = chosen;
  return TK_OK;
}

const DLTensor *tk_context::take_states(const DLTensor *inputs) {
  taken_.assign(inputs, inputs + model_.inputs.size());
  taken_states_.resize(model_.states.size());
  for (size_t i = 0; i < model_.states.size(); ++i) {
    const tk_state &state = model_.states[i];
    const size_t output = static_cast<size_t>(state.output);
    DLTensor *past = &taken_[static_cast<size_t>(state.input)];
    taken_states_[i] = tk::first_places(output_boxes_[output], outputs_[output].data, *past, state.axis);
    past->data = taken_states_[i].data();
  }
  return taken_.data();
}

tk_status tk_context::run_alone(const tk::Arguments &arguments, const tk::Timing &timing) {
  const DLTensor *inputs = states_.complete(arguments);
  if (const tk_status status = tk::bind_inputs(model_, inputs, &symbols_, &inputs_)) return status;
  if (const tk_status status = tk::bind_outputs(model_, states_.wanted(arguments), symbols_, &owned_, &outputs_))
    return status;
  for (tk::Box &box : input_boxes_) box.set(symbols_);
  for (tk::Box &box : output_boxes_) box.set(symbols_);
  states_.begin(&inputs_);
  if (const tk_status status =
          device_ != nullptr ? device_->run(symbols_, inputs_, input_boxes_, outputs_, output_boxes_, timing)
                             : run_on_host(timing))
    return status;
  if (const tk_status status = settle(states_.wanted(arguments))) return status;
  states_.keep(symbols_);
  return TK_OK;
}

tk_status tk_context::run_on_host(const tk::Timing &timing) {
  const int64_t begun = timing.run != nullptr ? now_ns() : 0;
  if (const tk_status status = place_samples()) return status;
  if (const tk_status status = stage_inputs()) return status;
  if (const tk_status status = stage_outputs()) return status;
  place_states();
  resolve_open(open_inputs_, inputs_);
  resolve_open(open_outputs_, outputs_);
  execute(timing.steps);
  if (timing.run != nullptr) timing.run->kernels = timing.run->with_copies = now_ns() - begun;
  return TK_OK;
}

tk_status tk_context::settle(const std::vector<DLTensor *> &outputs) {
  tk_status found = tk::read_counts(model_, outputs_, &symbols_, outputs);
  if (found == TK_OK && model_.plan->n_counts > 0) {
    for (tk::Box &box : output_boxes_) box.set(symbols_);
    if (device_ != nullptr) found = device_->hand_over_counted(outputs_, output_boxes_);
  }
  if (found == TK_OK && device_ == nullptr) hand_over();
  if (const tk_status status = tk::read_checks(model_, outputs_)) return status;
  return found;
}
