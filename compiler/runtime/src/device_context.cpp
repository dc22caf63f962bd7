#include "device_context.h"

#include <algorithm>

#include "error.h"
#include "pool.h"
#include "tk_plan.h"

namespace tk {
namespace {

// Where blocks deal out work among them: so many for each processor that one which is late leaves little to wait for,
// and so few that starting them costs nothing.
constexpr uint32_t kBlocksPerProcessor = 4;

// Recordings that a context keeps: two buffers in turns for input and output are four.
constexpr size_t kRecordings = 4;

// The recording of a step that is measured, and how often it does what it measures: launches of a microsecond are more
// than the clock's half of one then.
constexpr int32_t kStepRecording = kRecordings, kRepeats = 20;

// Nanoseconds that runs are repeated for, where fewer do.
constexpr int64_t kEnough = 20'000'000;

// Vectors are loaded whole: kernels count on this alignment.
constexpr uintptr_t kVector = 16;

bool usable(const Buffer &buffer) {
  return buffer.on_device && reinterpret_cast<uintptr_t>(buffer.data) % kVector == 0;
}

bool overlaps_any(const Buffer &buffer, const std::vector<Buffer> &others) {
  for (const Buffer &other : others)
    if (other.on_device && buffer.overlaps(other)) return true;
  return false;
}

tk_status no_memory(int64_t bytes) {
  return fail(TK_ERR_MEMORY, "no memory for a tensor with its largest extents (%lld bytes)",
              static_cast<long long>(bytes));
}

}  // namespace

DeviceContext::DeviceContext(const tk_model &model, bool callers_stream)
    : model_(model), callers_stream_(callers_stream),
      enough_(kBlocksPerProcessor * static_cast<uint32_t>(usable_processors())),
      has_branches_(model.plan->device->n_branches > 1) {}

tk_status DeviceContext::open(const tk_model &model, const Stream &stream, const DeviceContext *general,
                              std::unique_ptr<DeviceContext> *context) {
  std::unique_ptr<DeviceContext> opened(new DeviceContext(model, stream.callers));
  Queue *queue = nullptr;
  if (const tk_status status = model.device->open_queue(stream, &queue)) return status;
  opened->queue_.reset(queue);
  if (general != nullptr) opened->room_ = general->room_;
  if (general == nullptr)
    if (const tk_status status = opened->reserve_room()) return status;
  const size_t n_inputs = static_cast<size_t>(model.plan->n_inputs);
  opened->own_inputs_.resize(n_inputs);
  opened->own_outputs_.resize(model.outputs.size());
  opened->host_inputs_ = std::vector<Mapping>(n_inputs);
  opened->host_outputs_ = std::vector<Mapping>(model.outputs.size());
  opened->inputs_.resize(n_inputs);
  opened->outputs_.resize(model.outputs.size());
  *context = std::move(opened);
  return TK_OK;
}

DeviceContext::~DeviceContext() {
  if (queue_ != nullptr) queue_->finish();
  queue_.reset();
  for (const Own &own : own_inputs_) model_.device->release(own.data);
  for (const Own &own : own_outputs_) model_.device->release(own.data);
}

uint32_t DeviceContext::columns(const tk_launch &launch) const {
  return launch.elastic != 0 ? std::min(launch.grid[0], enough_) : launch.grid[0];
}

tk_status DeviceContext::reserve_room() {
  room_ = std::make_shared<Room>(model_.device);
  int64_t blocks = bytes_of_blocks(*model_.plan->device);
  for (const std::unique_ptr<tk_model> &own : model_.specialised)
    blocks = std::max(blocks, bytes_of_blocks(*own->plan->device));
  if (const tk_status status = reserve(&room_->arena, model_.most(&tk_plan::arena_bytes))) return status;
  return reserve(&room_->blocks, blocks);
}

int64_t DeviceContext::bytes_of_blocks(const tk_device_plan &plan) const {
  int64_t most = 0;
  for (int32_t n = 0; n < plan.n_launches; ++n)
    most = std::max(most, plan.launches[n].block_bytes * int64_t{columns(plan.launches[n])});
  return most;
}

tk_status DeviceContext::place_samples(const std::vector<int64_t> &symbols) {
  const tk_plan &plan = *model_.plan;
  if (plan.device->sample_alignment == 0) return TK_OK;
  samples_ = symbols[0];
  const int64_t arena = checked_product(plan.sample_bytes, samples_);
  const int64_t blocks = checked_product(bytes_of_blocks(*plan.device), samples_);
  if (arena < 0 || blocks < 0)
    return fail(TK_ERR_MEMORY, "no memory for the intermediate results of %lld samples (%lld bytes each)",
                static_cast<long long>(samples_), static_cast<long long>(plan.sample_bytes));
  const int64_t needed = plan.arena_bytes + arena;
  if (room_->arena.bytes < needed || room_->blocks.bytes < blocks)
    if (const tk_status status = queue_->finish()) return status;  // a run before may still be at work there
  if (const tk_status status = reserve(&room_->arena, needed)) return status;
  return reserve(&room_->blocks, blocks);
}

// Launches leave counters as they found them; a run that fails may not come to that.
tk_status DeviceContext::clear_counters() {
  const int64_t bytes = checked_product(model_.plan->device->counter_bytes, samples_);
  if (bytes < 0) return no_memory(model_.plan->device->counter_bytes);
  Room &room = *room_;
  if (bytes == 0 || (room.counters_clear && room.counters.bytes >= bytes)) return TK_OK;
  if (const tk_status status = queue_->finish()) return status;  // a run before may still be at work there
  if (const tk_status status = reserve(&room.counters, bytes)) return status;
  if (const tk_status status = fill_zeros(room.counters)) return status;
  room.counters_clear = true;
  return TK_OK;
}

void DeviceContext::size_grids(const std::vector<int64_t> &symbols) {
  const tk_device_plan &plan = *model_.plan->device;
  grids_.resize(static_cast<size_t>(plan.n_launches));
  for (int32_t n = 0; n < plan.n_launches; ++n) {
    const tk_launch &item = plan.launches[n];
    grids_[static_cast<size_t>(n)] = {columns(item), item.grid[1], item.grid[2] * static_cast<uint32_t>(samples_)};
  }
  for (int32_t n = 0; n < plan.n_ends; ++n) {
    const tk_grid_end &one = plan.ends[n];
    uint32_t *blocks = &grids_[static_cast<size_t>(one.launch)][static_cast<size_t>(one.axis)];
    const int64_t needed = (extent_of(one.end, symbols) * one.times + one.step - 1) / one.step;
    if (needed < *blocks) *blocks = static_cast<uint32_t>(std::max<int64_t>(needed, 1));
  }
}

tk_status DeviceContext::reserve(Own *own, int64_t bytes) {
  if (own->bytes >= bytes) return TK_OK;
  model_.device->release(own->data);
  *own = Own();
  void *memory = nullptr;
  if (const tk_status status = model_.device->allocate(bytes, &memory)) return status;
  own->data = static_cast<unsigned char *>(memory);
  own->bytes = bytes;
  return TK_OK;
}

tk_status DeviceContext::reserve_zeros(Own *own, int64_t bytes) {
  if (own->bytes >= bytes) return TK_OK;
  if (const tk_status status = reserve(own, bytes)) return status;
  return fill_zeros(*own);
}

tk_status DeviceContext::fill_zeros(const Own &own) {
  Mapping zeros;
  if (!zeros.allocate(own.bytes)) return no_memory(own.bytes);
  if (const tk_status status = queue_->upload(own.data, zeros.data(), own.bytes)) return status;
  return queue_->finish();
}

tk_status DeviceContext::place_part(size_t input, const Buffer &given, const Box &box) {
  unsigned char *const own = inputs_[input];
  if (!given.on_device && !box.is_one_run()) {
    Mapping *host = &host_inputs_[input];
    if (host->bytes() < box.bytes() && !host->allocate(box.bytes())) return no_memory(box.bytes());
    box.spread(host->data(), given.data);
    return queue_->upload(own, host->data(), box.bytes());
  }
  tk_status status = TK_OK;
  box.for_each_run([&](int64_t to, int64_t from, int64_t bytes) {
    if (status != TK_OK) return;
    status = given.on_device ? queue_->copy(own + to, given.data + from, bytes)
                             : queue_->upload(own + to, given.data + from, bytes);
  });
  return status;
}

tk_status DeviceContext::place_inputs(const std::vector<Buffer> &inputs, const std::vector<Box> &boxes) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Buffer &given = inputs[i];
    if (i < boxes.size() && model_.is_past[i]) continue;
    if (i < boxes.size() && boxes[i].is_part()) {
      if (const tk_status status = reserve_zeros(&own_inputs_[i], boxes[i].bytes())) return status;
      inputs_[i] = own_inputs_[i].data;
      if (const tk_status status = place_part(i, given, boxes[i])) return status;
      continue;
    }
    inputs_[i] = given.data;
    if (usable(given) || given.bytes == 0) continue;
    if (const tk_status status = reserve(&own_inputs_[i], given.bytes)) return status;
    inputs_[i] = own_inputs_[i].data;
    const tk_status status = given.on_device ? queue_->copy(inputs_[i], given.data, given.bytes)
                                             : queue_->upload(inputs_[i], given.data, given.bytes);
    if (status != TK_OK) return status;
  }
  return TK_OK;
}

tk_status DeviceContext::place_states(const std::vector<Buffer> &inputs, const std::vector<Box> &boxes) {
  for (const tk_state &state : model_.states) {
    const size_t input = static_cast<size_t>(state.input);
    inputs_[input] = outputs_[static_cast<size_t>(state.output)];
    if (inputs[input].data == nullptr) continue;  // it is there
    if (const tk_status status = place_part(input, inputs[input], boxes[input])) return status;
  }
  return TK_OK;
}

tk_status DeviceContext::place_outputs(const std::vector<Buffer> &inputs, const std::vector<Buffer> &outputs,
                                       const std::vector<Box> &boxes) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Buffer &given = outputs[i];
    if (boxes[i].is_part()) {
      const bool read = model_.is_present[i];  // as a whole, by what comes after
      Own *own = &own_outputs_[i];
      if (const tk_status status = read ? reserve_zeros(own, boxes[i].bytes()) : reserve(own, boxes[i].bytes()))
        return status;
      outputs_[i] = own->data;
      continue;
    }
    outputs_[i] = given.data;
    if ((usable(given) && !overlaps_any(given, inputs)) || given.bytes == 0) continue;
    if (const tk_status status = reserve(&own_outputs_[i], given.bytes)) return status;
    outputs_[i] = own_outputs_[i].data;
  }
  return TK_OK;
}

void DeviceContext::resolve() {
  const tk_plan &plan = *model_.plan;
  pointers_.clear();
  const tk_launch *launches = plan.device->launches;
  for (int32_t n = 0; n < plan.device->n_launches; ++n) {
    for (int32_t i = 0; i < launches[n].n_args; ++i) {
      const tk_arg &arg = plan.args[plan.device->args[launches[n].first_arg + i]];
      const size_t index = static_cast<size_t>(arg.index);
      unsigned char *base = arg.kind == TK_ARG_INPUT      ? inputs_[index]
                            : arg.kind == TK_ARG_OUTPUT   ? outputs_[index]
                            : arg.kind == TK_ARG_CONST    ? static_cast<unsigned char *>(model_.device_constants)
                            : arg.kind == TK_ARG_COUNTERS ? room_->counters.data
                                                          : room_->arena.data;
      pointers_.push_back(base == nullptr ? nullptr : base + arg.offset + arg.sample_offset * samples_);
    }
    if (launches[n].block_bytes != 0) pointers_.push_back(room_->blocks.data);
  }
}

tk_status DeviceContext::launch_steps(int32_t first, int32_t end) {
  const tk_plan &plan = *model_.plan;
  void *const *args = pointers_.data();
  for (int32_t n = 0; n < plan.device->n_launches; ++n) {
    const tk_launch &item = plan.device->launches[n];
    const int32_t n_args = item.n_args + (item.block_bytes != 0 ? 1 : 0);
    const std::array<uint32_t, 3> &grid = grids_[static_cast<size_t>(n)];
    const Launch launch = {item.function,
                           {grid[0], grid[1], grid[2]},
                           {item.block[0], item.block[1], item.block[2]},
                           item.shared_bytes,
                           item.dynamic_bytes};
    if (item.step >= first && item.step < end)
      if (const tk_status status = queue_->launch(launch, args, n_args)) return status;
    args += n_args;
  }
  return TK_OK;
}

tk_status DeviceContext::launch_branches() {
  const tk_device_plan &plan = *model_.plan->device;
  const int32_t *const all_waits = plan.waits + plan.n_waits;
  for (int32_t step = 0; step < model_.plan->n_steps; ++step) {
    const tk_turn &turn = plan.turns[step];
    queue_->set_branch(turn.branch);
    for (int32_t i = 0; i < turn.n_waits; ++i)
      if (const tk_status status = queue_->await(plan.waits[turn.first_wait + i])) return status;
    if (const tk_status status = launch_steps(step, step + 1)) return status;
    if (std::find(plan.waits, all_waits, step) == all_waits) continue;
    if (const tk_status status = queue_->name_point(step)) return status;
  }
  return TK_OK;
}

bool DeviceContext::record_run(int32_t number) {
  if (has_branches_ && queue_->begin_recording(model_.plan->device->n_branches) == TK_OK) {
    const tk_status launched = launch_branches();
    if (queue_->end_recording(number) == TK_OK && launched == TK_OK) return true;
  }
  has_branches_ = false;
  if (queue_->begin_recording(1) != TK_OK) return false;
  const tk_status launched = launch_all();
  return queue_->end_recording(number) == TK_OK && launched == TK_OK;
}

bool DeviceContext::record_step(int32_t number, int32_t step, int32_t times) {
  if (queue_->begin_recording(1) != TK_OK) return false;
  tk_status launched = TK_OK;
  for (int32_t i = 0; i < times && launched == TK_OK; ++i) launched = launch_steps(step, step + 1);
  return queue_->end_recording(number) == TK_OK && launched == TK_OK;
}

bool DeviceContext::is_of_this_run(const Recording &recording) const {
  return recording.pointers == pointers_ && recording.grids == grids_;
}

size_t DeviceContext::find_recording() {
  for (size_t i = 0; i < recordings_.size(); ++i)
    if (is_of_this_run(recordings_[i])) return i;
  if (recordings_.size() < kRecordings) {
    recordings_.emplace_back();
    return recordings_.size() - 1;
  }
  const auto earlier = [](const Recording &a, const Recording &b) { return a.last_run < b.last_run; };
  return static_cast<size_t>(std::min_element(recordings_.begin(), recordings_.end(), earlier) - recordings_.begin());
}

tk_status DeviceContext::launch_or_replay() {
  if (!records_ || !queue_->records()) return launch_all();
  const size_t found = find_recording();
  Recording &recording = recordings_[found];
  recording.last_run = ++runs_;
  if (!is_of_this_run(recording)) {
    recording.pointers = pointers_;
    recording.grids = grids_;
    recording.is_recorded = false;
    return launch_all();
  }
  const int32_t number = static_cast<int32_t>(found);
  if (!recording.is_recorded) records_ = recording.is_recorded = record_run(number);
  return recording.is_recorded ? queue_->replay(number) : launch_all();
}

// Which runs of elements there are is known later, of what is counted.
bool DeviceContext::goes_by_host(const Buffer &given, const Box &box) {
  return !given.on_device && (box.is_counted() || !box.is_one_run());
}

tk_status DeviceContext::hand_over_part(size_t output, const Buffer &given, const Box &box) {
  unsigned char *const own = outputs_[output];
  if (goes_by_host(given, box)) {
    Mapping *host = &host_outputs_[output];
    if (host->bytes() < box.bytes() && !host->allocate(box.bytes())) return no_memory(box.bytes());
    return queue_->download(host->data(), own, box.bytes());
  }
  tk_status status = TK_OK;
  box.for_each_run([&](int64_t from, int64_t to, int64_t bytes) {
    if (status != TK_OK) return;
    status = given.on_device ? queue_->copy(given.data + to, own + from, bytes)
                             : queue_->download(given.data + to, own + from, bytes);
  });
  return status;
}

void DeviceContext::gather_outputs(const std::vector<Buffer> &outputs, const std::vector<Box> &boxes) {
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].data != nullptr && boxes[i].is_part() && !boxes[i].is_counted() && goes_by_host(outputs[i], boxes[i]))
      boxes[i].gather(outputs[i].data, host_outputs_[i].data());
}

tk_status DeviceContext::hand_over(const std::vector<Buffer> &outputs, const std::vector<Box> &boxes) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Buffer &given = outputs[i];
    if (given.data == nullptr) continue;
    if (boxes[i].is_part()) {
      if (given.on_device && boxes[i].is_counted()) continue;
      if (const tk_status status = hand_over_part(i, given, boxes[i])) return status;
      continue;
    }
    if (outputs_[i] == given.data || given.bytes == 0) continue;
    const tk_status status = given.on_device ? queue_->copy(given.data, outputs_[i], given.bytes)
                                             : queue_->download(given.data, outputs_[i], given.bytes);
    if (status != TK_OK) return status;
  }
  return TK_OK;
}

tk_status DeviceContext::hand_over_counted(const std::vector<Buffer> &outputs, const std::vector<Box> &boxes) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!boxes[i].is_counted()) continue;
    if (goes_by_host(outputs[i], boxes[i]))
      boxes[i].gather(outputs[i].data, host_outputs_[i].data());
    else if (const tk_status status = hand_over_part(i, outputs[i], boxes[i]))
      return status;
  }
  return queue_->finish();
}

bool DeviceContext::has_launches(int32_t step) const {
  const tk_device_plan &plan = *model_.plan->device;
  return std::any_of(plan.launches, plan.launches + plan.n_launches,
                     [=](const tk_launch &item) { return item.step == step; });
}

tk_status DeviceContext::time_steps(tk_step_time *times) {
  if (!records_ || !queue_->records()) return time_launches(times);
  const tk_plan &plan = *model_.plan;
  for (int32_t step = 0; step < plan.n_steps; ++step) {
    times[step] = {plan.steps[step].kernel, 0, 0};
    if (!has_launches(step)) continue;
    // A step that works in place makes something else of its result each time: it is made anew for this one.
    if (const tk_status status = launch_steps(0, step + 1)) return status;
    records_ = record_step(kStepRecording, step, kRepeats);
    if (!records_) return time_launches(times);
    if (const tk_status status = time_recorded(&times[step].nanoseconds)) return status;
  }
  return launch_all();
}

// The second of two replays: it is in the queue before the first one ends, so nothing waits for the host.
tk_status DeviceContext::time_recorded(int64_t *nanoseconds) {
  if (const tk_status status = queue_->replay(kStepRecording)) return status;
  if (const tk_status status = queue_->mark(0)) return status;
  if (const tk_status status = queue_->replay(kStepRecording)) return status;
  if (const tk_status status = queue_->mark(1)) return status;
  if (const tk_status status = queue_->finish()) return status;
  if (const tk_status status = queue_->elapsed(0, 1, nanoseconds)) return status;
  *nanoseconds /= kRepeats;
  return TK_OK;
}

tk_status DeviceContext::time_launches(tk_step_time *times) {
  const tk_plan &plan = *model_.plan;
  if (const tk_status status = queue_->mark(0)) return status;
  for (int32_t step = 0; step < plan.n_steps; ++step) {
    if (const tk_status status = launch_steps(step, step + 1)) return status;
    if (const tk_status status = queue_->mark(step + 1)) return status;
  }
  if (const tk_status status = queue_->finish()) return status;
  for (int32_t step = 0; step < plan.n_steps; ++step) {
    times[step] = {plan.steps[step].kernel, 0, 0};
    if (const tk_status status = queue_->elapsed(step, step + 1, &times[step].nanoseconds)) return status;
  }
  return TK_OK;
}

tk_status DeviceContext::time_kernels(int64_t once, int64_t *nanoseconds) {
  const int64_t repeats = std::max<int64_t>(1, std::min<int64_t>(kRepeats, kEnough / std::max<int64_t>(once, 1)));
  if (const tk_status status = launch_or_replay()) return status;  // what is recorded is recorded now
  if (const tk_status status = queue_->mark(0)) return status;
  for (int64_t i = 0; i < repeats; ++i)
    if (const tk_status status = launch_or_replay()) return status;
  if (const tk_status status = queue_->mark(1)) return status;
  if (const tk_status status = queue_->finish()) return status;
  if (const tk_status status = queue_->elapsed(0, 1, nanoseconds)) return status;
  *nanoseconds /= repeats;
  return TK_OK;
}

tk_status DeviceContext::enqueue(const std::vector<Buffer> &inputs, const std::vector<Box> &input_boxes,
                                 const std::vector<Buffer> &outputs, const std::vector<Box> &output_boxes,
                                 const Timing &timing) {
  if (timing.run != nullptr)
    if (const tk_status status = queue_->mark(0)) return status;
  if (const tk_status status = place_inputs(inputs, input_boxes)) return status;
  if (const tk_status status = place_outputs(inputs, outputs, output_boxes)) return status;
  if (const tk_status status = place_states(inputs, input_boxes)) return status;
  resolve();
  if (const tk_status status = timing.steps != nullptr ? time_steps(timing.steps) : launch_or_replay()) return status;
  if (const tk_status status = hand_over(outputs, output_boxes)) return status;
  return timing.run != nullptr ? queue_->mark(1) : TK_OK;
}

tk_status DeviceContext::run(const std::vector<int64_t> &symbols, const std::vector<Buffer> &inputs,
                             const std::vector<Box> &input_boxes, const std::vector<Buffer> &outputs,
                             const std::vector<Box> &output_boxes, const Timing &timing) {
  const tk_status status = run_on_device(symbols, inputs, input_boxes, outputs, output_boxes, timing);
  if (status != TK_OK) room_->counters_clear = false;
  return status;
}

tk_status DeviceContext::run_on_device(const std::vector<int64_t> &symbols, const std::vector<Buffer> &inputs,
                                       const std::vector<Box> &input_boxes, const std::vector<Buffer> &outputs,
                                       const std::vector<Box> &output_boxes, const Timing &timing) {
  if (const tk_status status = place_samples(symbols)) return status;
  if (const tk_status status = clear_counters()) return status;
  size_grids(symbols);
  if (const tk_status status = enqueue(inputs, input_boxes, outputs, output_boxes, timing)) {
    queue_->finish();  // what was begun must not touch the caller's memory any more
    return status;
  }
  bool host = timing.run != nullptr || timing.steps != nullptr || !callers_stream_;
  for (const Buffer &one : inputs) host = host || !one.on_device;
  for (const Buffer &one : outputs) host = host || (one.data != nullptr && !one.on_device);
  if (host)
    if (const tk_status status = queue_->finish()) return status;
  gather_outputs(outputs, output_boxes);
  if (timing.run == nullptr) return TK_OK;
  if (const tk_status status = queue_->elapsed(0, 1, &timing.run->with_copies)) return status;
  return time_kernels(timing.run->with_copies, &timing.run->kernels);
}

}  // namespace tk
