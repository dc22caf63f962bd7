// What kernels call: places, barriers, sub-groups, atomics, asynchronous copies.
#include <cstring>

#include "emulator.h"

namespace tk::emu {
namespace {

#define TK_PLACE __builtin_return_address(0)

uint32_t lanes_of(const Worker &from) { return static_cast<uint32_t>(from.launch.kernel->subgroup); }

// Waits for the other lanes of a sub-group, with what they bring along.
void meet(Worker &from, Together together, uint64_t bits, void *const *operands, uint64_t lanes, int line) {
  Thread &self = *from.current;
  self.together = together;
  self.bits[self.steps % 2] = bits;
  self.operands = operands;
  self.lanes = lanes;
  self.line = line;
  self.state = State::kSubgroup;
  from.wait();
  ++self.steps;
}

// The thread that a shuffle takes its value from; another than one of the sub-group's lanes: none.
int64_t source_of(tk_emu_lanes kind, uint32_t lane, int argument, uint32_t width) {
  const int64_t own = lane, segment = lane / width * width;
  int64_t source = own;
  if (kind == TK_EMU_FROM) source = segment + (static_cast<uint32_t>(argument) % width);
  if (kind == TK_EMU_UP) source = own - argument;
  if (kind == TK_EMU_DOWN) source = own + argument;
  if (kind == TK_EMU_XOR) source = own ^ argument;
  const bool inside = kind == TK_EMU_XOR ? source < segment + width : source >= segment && source < segment + width;
  return inside ? source : own;
}

// What lane `source` has brought, of those that met.
uint64_t value_of(Worker &from, int64_t source, uint64_t lanes, const void *place) {
  const Thread &self = *from.current;
  const uint64_t number = (self.number & ~static_cast<uint64_t>(lanes_of(from) - 1)) + static_cast<uint64_t>(source);
  if (source < 0 || source >= lanes_of(from) || number >= from.launch.threads || (lanes >> source & 1) == 0) {
    const Busy busy(from);
    from.stop("sub-group: " + thread_text(from, self.number) +
              text(" takes the value of lane %lld, which takes no part", static_cast<long long>(source)) +
              place_text(place));
  }
  return from.threads[number].bits[(self.steps - 1) % 2];
}

template <class T> uint64_t swap(void *at, uint64_t expected, uint64_t wanted) {
  T seen = static_cast<T>(expected);
  __atomic_compare_exchange_n(static_cast<T *>(at), &seen, static_cast<T>(wanted), false, __ATOMIC_SEQ_CST,
                              __ATOMIC_SEQ_CST);
  return seen;
}

void arrive(Worker &from, const PendingCopy &copy) {
  if (copy.from == nullptr) std::memset(copy.to, 0, static_cast<size_t>(copy.bytes));
  else std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
  mark_flight(reinterpret_cast<uintptr_t>(copy.to), static_cast<size_t>(copy.bytes), false);
  (void)from;
}

void need_cluster(Worker &from, const void *place) {
  if (from.cluster != nullptr) return;
  const Busy busy(from);
  from.stop("cluster: " + thread_text(from, from.current->number) + " uses one, and the kernel has no __cluster_dims__" +
            place_text(place));
}

}  // namespace
}  // namespace tk::emu

using namespace tk::emu;

extern "C" {

tk_emu_uint3 tk_emu_thread_index() { return worker->current->index; }
tk_emu_uint3 tk_emu_block_index() { return worker->block_index; }
tk_emu_uint3 tk_emu_block_size() { return worker->launch.block; }
tk_emu_uint3 tk_emu_grid_size() { return worker->launch.grid; }

void tk_emu_barrier(int line) {
  Thread &self = *worker->current;
  self.line = line;
  self.state = State::kBarrier;
  worker->wait();
}

void tk_emu_cluster_barrier(int line) {
  Worker &from = *worker;
  need_cluster(from, TK_PLACE);
  from.current->line = line;
  from.current->state = State::kCluster;
  from.wait();
}

void *tk_emu_in_block(void *own, int rank) {
  Worker &from = *worker;
  need_cluster(from, TK_PLACE);
  return from.cluster->in_block(from, own, rank, TK_PLACE);
}

void tk_emu_subgroup_barrier(uint64_t lanes, int line) { meet(*worker, Together::kBarrier, 0, nullptr, lanes, line); }

uint64_t tk_emu_shuffle(tk_emu_lanes kind, uint64_t bits, int argument, int width, uint64_t lanes, int line) {
  Worker &from = *worker;
  const Thread &self = *from.current;
  meet(from, Together::kShuffle, bits, nullptr, lanes, line);
  const uint32_t lane = self.number & (lanes_of(from) - 1);
  return value_of(from, source_of(kind, lane, argument, static_cast<uint32_t>(width)), lanes, TK_PLACE);
}

void tk_emu_gather(uint64_t bits, const int *lanes, uint64_t *values, int count, int line) {
  Worker &from = *worker;
  meet(from, Together::kShuffle, bits, nullptr, ~0ull, line);
  for (int i = 0; i < count; ++i) values[i] = value_of(from, lanes[i], ~0ull, TK_PLACE);
}

uint64_t tk_emu_ballot(int vote, uint64_t lanes, int line) {
  Worker &from = *worker;
  Thread &self = *from.current;
  meet(from, Together::kBallot, vote != 0, nullptr, lanes, line);
  const uint32_t first = self.number & ~(lanes_of(from) - 1);
  uint64_t votes = 0;
  for (uint32_t lane = 0; lane < lanes_of(from) && first + lane < from.launch.threads; ++lane)
    if (lanes >> lane & 1) votes |= from.threads[first + lane].bits[(self.steps - 1) % 2] << lane;
  return votes;
}

void tk_emu_together(void (*perform)(void *const *const *operands), void *const *operands, int line) {
  Worker &from = *worker;
  Thread &self = *from.current;
  const uint32_t first = self.number & ~(lanes_of(from) - 1);
  if (first + lanes_of(from) > from.launch.threads) {
    const Busy busy(from);
    from.stop("sub-group: " + thread_text(from, self.number) +
              text(" takes part in an operation of %u lanes, and the block has %u threads from its sub-group's first on",
                   lanes_of(from), from.launch.threads - first) + line_text(line));
  }
  note_product();
  self.perform = perform;
  meet(from, Together::kPerform, 0, operands, ~0ull, line);
}

void tk_emu_lanes_differ(int row, int column) {
  Worker &from = *worker;
  from.tell("sub-group: lanes of the sub-group of " + thread_text(from, from.current->number) +
            text(" hold different values of element (%d, %d) of a tile", row, column) + line_text(from.current->line));
}

uint64_t tk_emu_atomic_read(const void *at, int bytes) {
  check(reinterpret_cast<uintptr_t>(at), static_cast<size_t>(bytes), Use::kAtomic, TK_PLACE);
  note(reinterpret_cast<uintptr_t>(at), static_cast<size_t>(bytes), Use::kAtomic, TK_PLACE);
  return bytes == 4 ? __atomic_load_n(static_cast<const uint32_t *>(at), __ATOMIC_SEQ_CST)
                    : __atomic_load_n(static_cast<const uint64_t *>(at), __ATOMIC_SEQ_CST);
}

uint64_t tk_emu_atomic_swap(void *at, uint64_t expected, uint64_t wanted, int bytes) {
  check(reinterpret_cast<uintptr_t>(at), static_cast<size_t>(bytes), Use::kAtomic, TK_PLACE);
  return bytes == 4 ? swap<uint32_t>(at, expected, wanted) : swap<uint64_t>(at, expected, wanted);
}

void tk_emu_fence() { fence(*worker); }

uint32_t tk_emu_come(uint32_t *counter, uint32_t most) {
  Worker &from = *worker;
  check(reinterpret_cast<uintptr_t>(counter), sizeof *counter, Use::kAtomic, TK_PLACE);
  note(reinterpret_cast<uintptr_t>(counter), sizeof *counter, Use::kAtomic, TK_PLACE);
  const Busy busy(from);
  // Where blocks run one by one, of all that would come, the one with the largest place along z is the last.
  if (counts_accesses()) return from.block_index.z % (most + 1);
  return come(from, counter, most);
}

// The worst that hardware may do: the copy comes when it is waited for, not earlier.
void tk_emu_async_copy(void *shared, const void *global, int bytes) {
  Worker &from = *worker;
  if (global != nullptr) check(reinterpret_cast<uintptr_t>(global), static_cast<size_t>(bytes), Use::kRead, TK_PLACE);
  check(reinterpret_cast<uintptr_t>(shared), static_cast<size_t>(bytes), Use::kWrite, TK_PLACE);
  note_copy(reinterpret_cast<uintptr_t>(shared), reinterpret_cast<uintptr_t>(global), bytes, TK_PLACE);
  const Busy busy(from);
  if ((reinterpret_cast<uintptr_t>(shared) | reinterpret_cast<uintptr_t>(global)) % static_cast<uintptr_t>(bytes) != 0)
    from.stop("misaligned: " + thread_text(from, from.current->number) +
              text(" copies %d bytes between places that are not multiples of that", bytes) + place_text(TK_PLACE));
  mark_flight(reinterpret_cast<uintptr_t>(shared), static_cast<size_t>(bytes), true);
  Thread &self = *from.current;
  self.copies.push_back({static_cast<unsigned char *>(shared), static_cast<const unsigned char *>(global), bytes, self.group});
}

void tk_emu_async_commit() { ++worker->current->group; }

void tk_emu_async_wait(int pending) {
  Worker &from = *worker;
  note_wait(pending, TK_PLACE);
  const Busy busy(from);
  Thread &self = *from.current;
  size_t kept = 0;
  for (const PendingCopy &copy : self.copies)
    if (copy.group < self.group - pending) arrive(from, copy);
    else self.copies[kept++] = copy;
  self.copies.resize(kept);
}

}  // extern "C"
