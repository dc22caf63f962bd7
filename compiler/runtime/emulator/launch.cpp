// Launches: arguments in memory of their own, blocks shared out to workers, threads run from barrier to barrier.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <thread>

#include "emulator.h"

extern "C" {
extern const char tk_emu_text[], tk_emu_text_end[];  // of the module; the latter is a zero byte
}

tk_emu_kernel *tk_emu_kernels = nullptr;

namespace tk::emu {

thread_local Worker *worker = nullptr;

namespace {

constexpr uintptr_t kGap = 64 << 10;  // between buffers
constexpr uintptr_t kAlignment = 256;
constexpr uint64_t kMostFibers = 1 << 14;  // of clusters: each takes two of 65530 mappings

uintptr_t rounded(uintptr_t value, uintptr_t to) { return (value + to - 1) / to * to; }

// ---------------------------------------------------------------- arguments

// A kernel's parameter: its elements for one sample of a batch, and how many more each further one has, which is so
// many blocks along z.
struct Size {
  std::string name;
  int64_t elements = 0, more = 0, blocks = 1;

  int64_t of_grid(uint32_t z) const { return elements + more * (z / blocks - 1); }
};

// "b0[64+80/2] b2[16]": the parameters of a kernel.
std::vector<Size> read_sizes(const char *text) {
  std::vector<Size> sizes;
  while (const char *open = std::strchr(text, '[')) {
    char *end = nullptr;
    Size size;
    size.name = std::string(text + std::strspn(text, " "), open);
    size.elements = std::strtoll(open + 1, &end, 10);
    if (*end == '+') size.more = std::strtoll(end + 1, &end, 10);
    if (*end == '/') size.blocks = std::strtoll(end + 1, &end, 10);
    sizes.push_back(size);
    text = end + (*end == ']');
  }
  return sizes;
}

// Regions of all arguments, by address; those that overlap become one.
std::vector<Region> read_regions(const tk_emu_kernel &kernel, void *const *args, uint32_t z) {
  const auto sizes = read_sizes(kernel.sizes);
  std::vector<Region> found;
  for (int i = 0; i < kernel.n_params; ++i) {
    Region region = {};
    const Size &size = sizes[static_cast<size_t>(i)];
    region.names = size.name;
    region.original = static_cast<unsigned char *>(args[i]);
    region.element_bytes = kernel.element_bytes[i];
    region.bytes = size.of_grid(z) * region.element_bytes;
    region.constant = kernel.constant[i];
    found.push_back(region);
  }
  std::stable_sort(found.begin(), found.end(), [](const Region &a, const Region &b) { return a.original < b.original; });
  std::vector<Region> merged;
  for (const Region &region : found) {
    if (merged.empty() || region.original >= merged.back().original + merged.back().bytes) {
      merged.push_back(region);
      continue;
    }
    Region &last = merged.back();
    last.names += ", " + region.names;
    last.bytes = std::max<int64_t>(last.bytes, region.original + region.bytes - last.original);
    last.element_bytes = std::min(last.element_bytes, region.element_bytes);
    last.constant = last.constant && region.constant;
  }
  return merged;
}

// Gives every region a place of its own; its bytes are 0.
void place_regions(Launch &launch) {
  uintptr_t bytes = kGap, records = 0;
  for (const Region &region : launch.regions) {
    bytes = rounded(bytes, kAlignment) + kAlignment + static_cast<uintptr_t>(region.bytes) + kGap;
    if (!region.constant) records += 2 * (static_cast<uintptr_t>(region.bytes / region.element_bytes) + 1);
  }
  launch.memory = Mapping(bytes);
  launch.shadow = Mapping(records * sizeof(std::atomic<uint64_t>));
  launch.low = reinterpret_cast<uintptr_t>(launch.memory.data());
  launch.high = launch.low + bytes;
  uintptr_t at = kGap;
  std::atomic<uint64_t> *record = reinterpret_cast<std::atomic<uint64_t> *>(launch.shadow.data());
  for (Region &region : launch.regions) {
    // As aligned as the original, so that what is misaligned there is so here.
    at = rounded(at, kAlignment) + reinterpret_cast<uintptr_t>(region.original) % kAlignment;
    region.memory = launch.memory.data() + at;
    at += static_cast<uintptr_t>(region.bytes) + kGap;
    if (region.constant) continue;
    const int64_t elements = region.bytes / region.element_bytes + 1;
    region.writers = record;
    region.readers = record + elements;
    record += 2 * elements;
  }
}

void *moved(const Launch &launch, void *arg) {
  unsigned char *pointer = static_cast<unsigned char *>(arg);
  for (const Region &region : launch.regions)
    if (pointer >= region.original && (pointer < region.original + region.bytes || pointer == region.original))
      return region.memory + (pointer - region.original);
  return arg;
}

void hand_back(const Launch &launch) {
  for (const Region &region : launch.regions)
    if (!region.constant) std::memcpy(region.original, region.memory, static_cast<size_t>(region.bytes));
}

// ---------------------------------------------------------------- the grid

const tk_emu_kernel *find_kernel(const char *name) {
  for (const tk_emu_kernel *one = tk_emu_kernels; one != nullptr; one = one->next)
    if (std::strcmp(one->name, name) == 0) return one;
  return nullptr;
}

std::string problem_of(const EmulatedLaunch &wanted, const tk_emu_kernel *kernel) {
  if (kernel == nullptr) return "the emulation has no such kernel";
  if (kernel->n_params != wanted.n_args || read_sizes(kernel->sizes).size() != static_cast<size_t>(kernel->n_params))
    return text("%d arguments were given for %d parameters", wanted.n_args, kernel->n_params);
  const uint64_t threads = static_cast<uint64_t>(wanted.block[0]) * wanted.block[1] * wanted.block[2];
  if (threads == 0 || threads > 1024) return text("%llu threads in a block", static_cast<unsigned long long>(threads));
  if (wanted.grid[0] == 0 || wanted.grid[1] == 0 || wanted.grid[2] == 0) return "a grid without blocks";
  if (wanted.grid[2] % static_cast<uint32_t>(kernel->cluster) != 0)
    return text("%u blocks along z in clusters of %d", static_cast<unsigned>(wanted.grid[2]), kernel->cluster);
  return "";
}

}  // namespace

std::string prepare(Launch &launch, const EmulatedLaunch &wanted) {
  const tk_emu_kernel *kernel = find_kernel(wanted.function);
  const std::string problem = problem_of(wanted, kernel);
  if (!problem.empty()) return problem;
  launch.kernel = kernel;
  launch.grid = {wanted.grid[0], wanted.grid[1], wanted.grid[2]};
  launch.block = {wanted.block[0], wanted.block[1], wanted.block[2]};
  launch.threads = wanted.block[0] * wanted.block[1] * wanted.block[2];
  launch.units = static_cast<uint64_t>(wanted.grid[0]) * wanted.grid[1] * wanted.grid[2] / static_cast<uint32_t>(kernel->cluster);
  try {
    for (const SharedArray &array : image().arrays)
      if (array.kernel == kernel->name) launch.arrays.push_back(&array);
    launch.regions = read_regions(*kernel, wanted.args, wanted.grid[2]);
    place_regions(launch);
  } catch (const std::bad_alloc &) {
    return "the emulator is out of memory";
  }
  for (int32_t i = 0; i < wanted.n_args; ++i) launch.args.push_back(moved(launch, wanted.args[i]));
  return "";
}

void run_units(Launch &launch) {
  if (launch.kernel->cluster > 1) Cluster(launch).run();
  else Worker(launch).run();
}

namespace {

// Host threads that run units. All fibers of a cluster are there at once: no more than the system gives memory for.
uint64_t count_workers(const Launch &launch) {
  uint64_t most = std::max(1u, std::thread::hardware_concurrency());
  if (launch.kernel->cluster > 1)
    most = std::clamp<uint64_t>(kMostFibers / (launch.threads * static_cast<uint64_t>(launch.kernel->cluster)), 1, most);
  return std::min(most, launch.units);
}

void run_grid(Launch &launch) {
  const uint64_t count = count_workers(launch);
  const auto work = [&launch] {
    try {
      run_units(launch);
    } catch (const std::bad_alloc &) {
      const std::lock_guard<std::mutex> lock(launch.mutex);
      if (!launch.failed.exchange(true)) launch.report = "the emulator is out of memory";
    }
  };
  std::vector<std::thread> others;
  for (uint64_t i = 1; i < count; ++i) others.emplace_back(work);
  work();
  for (std::thread &other : others) other.join();
}

bool launch_emulated(const EmulatedLaunch &wanted, char *message, int64_t size) {
  Launch launch;
  std::string report = prepare(launch, wanted);
  if (report.empty()) {
    for (const Region &region : launch.regions)
      std::memcpy(region.memory, region.original, static_cast<size_t>(region.bytes));
    run_grid(launch);
    hand_back(launch);
    report = launch.report.empty() ? left_behind(launch) : launch.report;
  }
  if (!report.empty()) std::snprintf(message, static_cast<size_t>(size), "%s: %s", wanted.function, report.c_str());
  return report.empty();
}

void run_thread() {
  Worker *from = worker;
  const tk_emu_kernel *kernel = from->launch.kernel;
  from->busy = false;
  kernel->call(kernel->function, from->launch.args.data());
  from = worker;
  from->current->state = State::kDone;
  from->wait();
  std::abort();  // nobody goes on with what has ended
}

}  // namespace

// ---------------------------------------------------------------- blocks

Worker::Worker(Launch &of)
    : launch(of), threads(of.threads), image_base(image().base),
      lane_bits(static_cast<uint32_t>(__builtin_ctz(static_cast<unsigned>(of.kernel->subgroup)))),
      cell_memory_(rounded(image().thread_bytes, 4) * sizeof(Cell)) {
  shared_low = reinterpret_cast<uintptr_t>(&anchor) - image().anchor_offset;
  shared_high = shared_low + image().thread_bytes;
  cells = reinterpret_cast<Cell *>(cell_memory_.data());
  parts = cells + (image().thread_bytes + 3) / 4;
  const uint32_t lanes = static_cast<uint32_t>(launch.kernel->subgroup);
  subgroup_epochs.assign((launch.threads + lanes - 1) / lanes, 0);
  for (uint32_t n = 0; n < launch.threads; ++n) {
    threads[n].number = n;
    threads[n].index = {n % launch.block.x, n / launch.block.x % launch.block.y, n / launch.block.x / launch.block.y};
  }
}

void Worker::run() {
  worker = this;
  while (!launch.failed.load()) {
    const uint64_t number = launch.next_unit.fetch_add(1);
    if (number >= launch.units) break;
    begin_block({static_cast<uint32_t>(number % launch.grid.x), static_cast<uint32_t>(number / launch.grid.x % launch.grid.y),
                 static_cast<uint32_t>(number / launch.grid.x / launch.grid.y)});
    run_block();
  }
  worker = nullptr;
}

// Fibers go back to the pool when their thread has ended: one is enough for a kernel without barriers.
void Worker::start(Thread &thread) {
  if (free_.empty()) {
    fibers_.push_back(std::make_unique<Fiber>(fibers_.size()));
    free_.push_back(fibers_.back().get());
  }
  thread.fiber = free_.back();
  free_.pop_back();
  thread.fiber->prepare(run_thread);
  thread.started = true;
}

void Worker::begin_block(const tk_emu_uint3 &index) {
  block_index = index;
  block_number = (static_cast<uint64_t>(index.z) * launch.grid.y + index.y) * launch.grid.x + index.x;
  ++block_serial;
  ++epoch;
  ended = false;
  for (Thread &thread : threads) {
    thread.state = State::kReady;
    thread.started = false;
    thread.steps = 0;
    thread.group = 0;
    thread.copies.clear();
  }
  begin_counting(*this);
}

void Worker::run_block() {
  for (;;) {
    bool progress = false;
    size_t done = 0;
    for (Thread &thread : threads) {
      if (thread.state == State::kReady) {
        progress = true;
        if (!thread.started) start(thread);
        current = &thread;
        private_low = thread.fiber->low();
        busy = false;
        thread.fiber->resume();
        current = nullptr;
        if (launch.failed.load()) return;
        if (thread.state == State::kDone) free_.push_back(thread.fiber);
        if (subgroup_of(thread.number + 1) != subgroup_of(thread) || &thread == &threads.back()) fold(*this, thread);
      }
      done += thread.state == State::kDone;
    }
    ended = done == threads.size();
    if (ended) return;
    release_subgroups();
    if (progress) continue;
    const bool ready = std::any_of(threads.begin(), threads.end(), [](const Thread &t) { return t.state == State::kReady; });
    if (ready || release(State::kBarrier)) continue;
    if (!all_wait(State::kCluster)) tell(stuck());
    return;
  }
}

void Worker::wait() { current->fiber->suspend(); }

void Worker::tell(const std::string &report) {
  const std::lock_guard<std::mutex> lock(launch.mutex);
  if (!launch.failed.exchange(true)) launch.report = report;
}

void Worker::stop(const std::string &report) {
  tell(report);
  wait();
  std::abort();  // nobody goes on with what was stopped
}

void Worker::release_subgroups() {
  const uint32_t lanes = static_cast<uint32_t>(launch.kernel->subgroup);
  for (uint32_t first = 0; first < launch.threads; first += lanes)
    while (release_subgroup(first, std::min(first + lanes, launch.threads))) {
    }
}

// The operation that all lanes of a sub-group wait in; their operands are private memory.
void Worker::perform(uint32_t first) {
  void *const *operands[kMostLanes];
  for (uint32_t lane = 0; lane < static_cast<uint32_t>(launch.kernel->subgroup); ++lane)
    operands[lane] = threads[first + lane].operands;
  current = &threads[first];
  busy = true;
  current->perform(operands);
  busy = false;
  current = nullptr;
}

// Lets the lanes go on that named each other and have all come to the same place; says whether there are such.
bool Worker::release_subgroup(uint32_t first, uint32_t end) {
  for (uint32_t n = first; n < end; ++n) {
    const Thread &one = threads[n];
    if (one.state != State::kSubgroup) continue;
    bool all = true;
    for (uint32_t other = first; other < end; ++other) {
      const Thread &thread = threads[other];
      if ((one.lanes >> (other - first) & 1) == 0) continue;
      all = all && thread.state == State::kSubgroup && thread.together == one.together && thread.line == one.line &&
            thread.lanes == one.lanes;
    }
    if (!all) continue;
    if (one.together == Together::kPerform) perform(first);
    if (one.together == Together::kBarrier) ++subgroup_epochs[first / static_cast<uint32_t>(launch.kernel->subgroup)];
    const uint64_t lanes = one.lanes;
    for (uint32_t other = first; other < end; ++other)
      if (lanes >> (other - first) & 1) threads[other].state = State::kReady;
    return true;
  }
  return false;
}

bool Worker::all_wait(State state) const {
  return std::all_of(threads.begin(), threads.end(), [&](const Thread &thread) {
    return thread.state == state && thread.line == threads[0].line;
  });
}

bool Worker::release(State state) {
  if (!all_wait(state)) return false;
  for (Thread &thread : threads) thread.state = State::kReady;
  note_barrier(*this, threads[0].line);
  ++epoch;
  return true;
}

// Why no thread can go on.
std::string Worker::stuck() const {
  const auto find = [this](State state) {
    return std::find_if(threads.begin(), threads.end(), [=](const Thread &thread) { return thread.state == state; });
  };
  auto waiting = find(State::kSubgroup);
  if (waiting == threads.end()) waiting = find(State::kBarrier);
  if (waiting == threads.end()) waiting = find(State::kCluster);
  const bool barrier = waiting->state != State::kSubgroup;
  const uint32_t lanes = barrier ? launch.threads : static_cast<uint32_t>(launch.kernel->subgroup);
  const uint32_t first = waiting->number / lanes * lanes;
  const Thread *other = nullptr;
  for (uint32_t n = first; n < std::min(first + lanes, launch.threads); ++n) {
    const Thread &thread = threads[n];
    if (thread.state == waiting->state && thread.line == waiting->line && thread.together == waiting->together) continue;
    if (other == nullptr) other = &thread;
  }
  std::string where = "threads wait for each other in different operations of a sub-group";
  if (other != nullptr && other->state == State::kDone)
    where = fellow_text(*this, other->number) + " has ended";
  else if (other != nullptr)
    where = fellow_text(*this, other->number) + " waits elsewhere" + line_text(other->line);
  return std::string(barrier ? "divergent barrier: " : "divergent sub-group operation: ") +
         thread_text(*this, waiting->number) + " waits" + line_text(waiting->line) + "; " + where;
}

}  // namespace tk::emu

extern "C" __attribute__((visibility("default"))) const tk::Emulation tk_emulation_v1 = {
    tk::kEmulationVersion, tk_emu_text, tk_emu_text_end - tk_emu_text, tk::emu::launch_emulated, TK_EMU_CHECKED};
