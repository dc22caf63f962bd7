// Counters that blocks come to: which of them has seen what others wrote.
//
// A block that comes to a counter lets those that come later see what it wrote before: what its threads wrote before
// the last barrier, if each of them has had a fence since, or the one that comes has had one behind the barrier. What
// the others wrote is seen behind a fence in turn: by the thread that came, and behind a barrier by all.
#include <algorithm>

#include "emulator.h"

namespace tk::emu {
namespace {

constexpr uint64_t kEpochs = 1 << 21;  // as many as a record of an access tells apart

bool is_before(uint64_t earlier, uint64_t later) { return earlier != later && ((later - earlier) & (kEpochs - 1)) < kEpochs / 2; }

// Whether what the threads of the block wrote before the last barrier, and this one until now, reaches the device.
bool has_released(const Worker &from) {
  if (from.current->fenced_at != 0 && from.current->fence_epoch == from.epoch) return true;
  return std::none_of(from.threads.begin(), from.threads.end(), [](const Thread &one) { return one.unfenced; });
}

}  // namespace

void begin_counting(Worker &from) {
  from.came_at = from.came_epoch = 0;
  from.seen.clear();
  from.seen_epoch = 0;
  for (Thread &thread : from.threads) {
    thread.unfenced = false;
    thread.fenced_at = thread.fence_epoch = 0;
  }
}

void fence(Worker &from) {
  Thread &self = *from.current;
  self.unfenced = false;
  self.fenced_at = ++from.fences;
  self.fence_epoch = from.epoch;
  if (from.came_at != 0 && from.seen_epoch == 0 && (from.epoch != from.came_epoch || self.number == from.came_thread))
    from.seen_epoch = from.epoch;
}

uint32_t come(Worker &from, uint32_t *counter, uint32_t most) {
  const std::lock_guard<std::mutex> lock(from.launch.counting);
  std::vector<Came> &others = from.launch.came[counter];
  const uint32_t before = *counter;
  *counter = before >= most ? 0 : before + 1;
  from.seen = others;
  from.came_at = ++from.fences;
  from.came_epoch = from.epoch;
  from.came_thread = from.current->number;
  from.seen_epoch = 0;
  others.push_back({from.block_number, from.epoch, from.current->number, has_released(from)});
  if (before >= most) others.clear();
  return before;
}

// Whether this thread sees what another block's thread did then; `unreleased`: it came, but had no fence.
bool has_seen(const Worker &from, uint64_t block, uint32_t thread, uint64_t epoch, bool *unreleased) {
  if (from.came_at == 0) return false;
  const Thread &self = *from.current;
  const bool told = from.epoch != from.came_epoch || self.number == from.came_thread;
  const bool own = self.fenced_at > from.came_at, others = from.seen_epoch != 0 && from.epoch != from.seen_epoch;
  for (const Came &one : from.seen) {
    if (one.block != block) continue;
    if (!is_before(epoch, one.epoch) && !(one.thread == thread && (one.epoch & (kEpochs - 1)) == epoch)) continue;
    *unreleased = !one.released || !(own || others);
    return told && !*unreleased;
  }
  return false;
}

// Of a launch that has ended: a counter that is not as it has to be for the next one.
std::string left_behind(const Launch &launch) {
  for (const auto &[counter, blocks] : launch.came) {
    if (*counter == 0) continue;
    const uintptr_t address = reinterpret_cast<uintptr_t>(counter);
    return "counter: " + global_text(launch, address) + text(" is left at %u: the next launch starts from there", *counter);
  }
  return "";
}

}  // namespace tk::emu
