// Checks of every access to memory, and the functions that instrumented kernels call: those of -fsanitize=thread for
// each access, those of -fsanitize=alignment,bounds when something is wrong.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "cells.h"
#include "emulator.h"

namespace tk::emu {
namespace {

#define TK_PLACE __builtin_return_address(0)

// ---------------------------------------------------------------- outside of every buffer

struct Nearest {
  std::string text;
  uintptr_t distance = ~static_cast<uintptr_t>(0);

  void offer(const std::string &name, uintptr_t start, int64_t bytes, int64_t element_bytes, uintptr_t address,
             const std::string &whose = "") {
    const uintptr_t end = start + static_cast<uintptr_t>(bytes);
    const uintptr_t away = address < start ? start - address : address >= end ? address - end + 1 : 0;
    if (away >= distance) return;
    distance = away;
    const long long index = (static_cast<long long>(address) - static_cast<long long>(start)) / element_bytes -
                            (address < start && (start - address) % static_cast<uintptr_t>(element_bytes) != 0);
    text = name + emu::text("[%lld]", index) + whose +
           emu::text(", outside of its %lld elements", static_cast<long long>(bytes / element_bytes));
  }
};

[[noreturn]] void outside(Worker &from, uintptr_t address, size_t bytes, Use use, const void *place) {
  Nearest nearest;
  for (const Region &region : from.launch.regions)
    nearest.offer(region.names, reinterpret_cast<uintptr_t>(region.memory), region.bytes, region.element_bytes, address);
  const auto offer_arrays = [&](uintptr_t low, const std::string &whose) {
    for (const SharedArray *array : from.launch.arrays)
      nearest.offer("shared " + array->name, low + array->offset, array->bytes,
                    array->bytes % static_cast<int64_t>(bytes) == 0 ? static_cast<int64_t>(bytes) : 1, address, whose);
  };
  offer_arrays(from.shared_low, "");
  if (from.cluster != nullptr)
    from.cluster->each_other(from, [&](const Worker &owner) { offer_arrays(owner.kept_low, " of " + block_text(owner)); });
  if (nearest.text.empty() || nearest.distance > (1 << 30)) nearest.text = "memory that no argument points to";
  from.stop("out of bounds: " + thread_text(from, from.current->number) + " " + verb(use) + " " + nearest.text +
            place_text(place));
}

// ---------------------------------------------------------------- buffers of arguments

// Who used an element: block + 1, atomic or several, thread of the block, barriers until then.
constexpr uint64_t kFlag = 1ull << 31;
constexpr uint64_t kAllBlocks = ~0ull;  // of readers: more than one block

uint64_t stamp(const Worker &from) {
  return (from.block_number + 1) << 32 | static_cast<uint64_t>(from.current->number & 0x3ff) << 21 |
         (from.epoch & 0x1fffff);
}
bool same_block(uint64_t a, uint64_t b) { return a >> 32 == b >> 32; }
bool same_epoch(uint64_t a, uint64_t b) { return (a & 0x1fffff) == (b & 0x1fffff); }
bool same_thread(uint64_t a, uint64_t b) { return (a >> 21 & 0x3ff) == (b >> 21 & 0x3ff); }
bool unordered(uint64_t earlier, uint64_t mine) {
  if (earlier == 0) return false;
  if (!same_block(earlier, mine)) return true;
  return same_epoch(earlier, mine) && !same_thread(earlier, mine);
}

// The same where a counter may have put them in order; `unfenced`: it would have, with fences.
bool unordered_by(const Worker &from, uint64_t earlier, uint64_t mine, bool *unfenced) {
  if (!unordered(earlier, mine)) return false;
  if (same_block(earlier, mine) || earlier == kAllBlocks) return true;
  return !has_seen(from, ((earlier & ~kFlag) >> 32) - 1, static_cast<uint32_t>(earlier >> 21 & 0x3ff), earlier & 0x1fffff, unfenced);
}

[[noreturn]] void global_race(Worker &from, const char *earlier_verb, uint64_t earlier, uint64_t mine, uintptr_t address,
                              Use use, const void *place, bool unfenced) {
  std::string other = "another block";
  if (earlier != kAllBlocks) {
    const uint64_t block = (earlier >> 32) - 1;
    const tk_emu_uint3 &grid = from.launch.grid;
    if (same_block(earlier, mine))
      other = fellow_text(from, static_cast<uint32_t>(earlier >> 21 & 0x3ff));
    else
      other = text("block (%u, %u, %u)", static_cast<unsigned>(block % grid.x),
                   static_cast<unsigned>(block / grid.x % grid.y), static_cast<unsigned>(block / grid.x / grid.y));
  }
  from.stop("race: " + thread_text(from, from.current->number) + " " + verb(use) + " " + element_text(from, address, 0) +
            ", which " + other + " " + earlier_verb + " with no " + (unfenced ? "fence of the device" : "barrier") + " between" +
            place_text(place));
}

void note_reader(std::atomic<uint64_t> &readers, uint64_t mine) {
  uint64_t seen = readers.load(std::memory_order_relaxed), wanted;
  do {
    if (seen == kAllBlocks || (seen & ~kFlag) == mine) return;
    wanted = mine;
    if (seen != 0 && !same_block(seen, mine)) wanted = kAllBlocks;
    else if (seen != 0 && same_epoch(seen, mine)) wanted = mine | kFlag;
  } while (!readers.compare_exchange_weak(seen, wanted));
}

void check_global(Worker &from, Region &region, uintptr_t address, size_t bytes, Use use, const void *place) {
  if (region.constant) return;
  const uint64_t mine = stamp(from);
  const uintptr_t first = address - reinterpret_cast<uintptr_t>(region.memory);
  const uintptr_t size = static_cast<uintptr_t>(region.element_bytes);
  if (use == Use::kWrite) from.current->unfenced = true;
  bool unfenced = false;
  for (uintptr_t n = first / size; n <= (first + bytes - 1) / size; ++n) {
    const uintptr_t element = reinterpret_cast<uintptr_t>(region.memory) + n * size;
    if (use == Use::kRead) {
      note_reader(region.readers[n], mine);
      const uint64_t writer = region.writers[n].load();
      if (unordered_by(from, writer, mine, &unfenced))
        global_race(from, "wrote", writer & ~kFlag, mine, element, use, place, unfenced);
      continue;
    }
    const uint64_t flag = use == Use::kAtomic ? kFlag : 0;
    const uint64_t writer = region.writers[n].exchange(mine | flag);
    if (unordered_by(from, writer, mine, &unfenced) && !(flag != 0 && (writer & kFlag) != 0))
      global_race(from, (writer & kFlag) != 0 ? "updated" : "wrote", writer, mine, element, use, place, unfenced);
    const uint64_t reader = region.readers[n].load();
    const bool others = reader == kAllBlocks || unordered_by(from, reader, mine, &unfenced) ||
                        (reader != 0 && same_epoch(reader, mine) && (reader & kFlag) != 0);
    if (others) global_race(from, "read", reader, mine, element, use, place, unfenced);
  }
}

bool try_global(Worker &from, uintptr_t address, size_t bytes, Use use, const void *place) {
  Launch &launch = from.launch;
  const size_t count = launch.regions.size();
  for (size_t tried = 0, n = from.last_region; tried < count; ++tried, n = n + 1 < count ? n + 1 : 0) {
    Region &region = launch.regions[n];
    const uintptr_t offset = address - reinterpret_cast<uintptr_t>(region.memory);
    if (offset > static_cast<uintptr_t>(region.bytes) || offset + bytes > static_cast<uintptr_t>(region.bytes)) continue;
    from.last_region = n;
    check_global(from, region, address, bytes, use, place);
    return true;
  }
  return false;
}

// ---------------------------------------------------------------- shared arrays

bool in_order(const Worker &from, const Access &earlier, uint32_t subgroup) {
  if (earlier.epoch != from.epoch) return true;
  if (from.subgroup_of(earlier.thread) != subgroup) return false;
  return earlier.subgroup_epoch != from.subgroup_epochs[subgroup];
}

[[noreturn]] void shared_race(Worker &from, const Access &earlier, const char *earlier_verb, uintptr_t address,
                              size_t bytes, Use use, const void *place) {
  const std::string other = earlier.many || earlier.thread == from.current->number
                                ? "another thread"
                                : fellow_text(from, earlier.thread);
  from.stop("race: " + thread_text(from, from.current->number) + " " + verb(use) + " " + element_text(from, address, bytes) +
            ", which " + other + " " + earlier_verb + " with no barrier between" + earlier_text(earlier.place) +
            place_text(place));
}

// A word that several threads of this sub-group have read already, in order with what was written there: the most
// frequent access by far, which changes nothing of what is known.
bool read_again(const Worker &from, const Cell &cell, uint32_t subgroup) {
  const Access &read = cell.read;
  return read.many && read.epoch == from.epoch && cell.write.epoch != 0 && cell.write.epoch != from.epoch &&
         !cell.in_flight && from.subgroup_of(read.thread) == subgroup &&
         read.subgroup_epoch == from.subgroup_epochs[subgroup];
}

void check_cell(Worker &from, Cell &cell, uintptr_t address, size_t bytes, Use use, const void *place) {
  const uint32_t number = from.current->number, subgroup = from.subgroup_of(*from.current);
  if (use == Use::kRead && read_again(from, cell, subgroup)) return;
  const Access mine = {from.epoch, from.subgroup_epochs[subgroup], static_cast<uint16_t>(number), false,
                       use == Use::kAtomic, offset_of(from, place)};
  if (cell.in_flight)
    from.stop("asynchronous copy: " + thread_text(from, number) + " " + verb(use) + " " + element_text(from, address, bytes) +
              " before what is copied there was waited for" + place_text(place));
  if (use != Use::kWrite && cell.write.epoch == 0)
    from.stop("uninitialised: " + thread_text(from, number) + " " + verb(use) + " " + element_text(from, address, bytes) +
              ", which this block has not written" + place_text(place));
  const Access &write = cell.write;
  if (write.epoch != 0 && write.thread != number && !(write.atomic && mine.atomic) && !in_order(from, write, subgroup))
    shared_race(from, write, write.atomic ? "updated" : "wrote", address, bytes, use, place);
  if (use != Use::kRead) {
    for (const Access *read : {&cell.read, &cell.other_read})
      if (read->epoch != 0 && (read->thread != number || read->many) && !in_order(from, *read, subgroup))
        shared_race(from, *read, "read", address, bytes, use, place);
    cell.write = mine;
    return;
  }
  Access &last = cell.read;
  const bool current = last.epoch == mine.epoch;
  if (current && from.subgroup_of(last.thread) != subgroup) {
    cell.other_read = last;
  } else if (current && last.subgroup_epoch == mine.subgroup_epoch && (last.many || last.thread != number)) {
    last = mine;
    last.many = true;
    return;
  }
  last = mine;
}

bool try_shared(Worker &from, uintptr_t address, size_t bytes, Use use, const void *place) {
  if (!in_array(from, address, bytes)) return false;
  if (from.cluster != nullptr && use != Use::kRead) from.cluster->check_visits(from, address, bytes, use, place);
  each_cell(from, address, bytes, [&](Cell &cell, uintptr_t at) { check_cell(from, cell, at, std::min<size_t>(bytes, 4), use, place); });
  return true;
}

bool in_own_image(uintptr_t address, size_t bytes) {
  return address >= image().low && address + bytes <= image().high;
}

// What the compiler put elsewhere: constants of the library.
bool is_allowed(uintptr_t address, size_t bytes, Use use) { return use == Use::kRead && in_own_image(address, bytes); }

__attribute__((noinline)) void check_others(Worker &from, uintptr_t address, size_t bytes, Use use, const void *place) {
  if (from.current == nullptr || from.busy || bytes == 0 || !from.launch.kernel->checked) return;
  const Busy busy(from);
  const bool shared = address >= from.shared_low && address < from.shared_high;
  if (shared ? try_shared(from, address, bytes, use, place) : try_global(from, address, bytes, use, place)) return;
  if (from.cluster != nullptr && from.cluster->try_other(from, address, bytes, use, place)) return;
  if (is_allowed(address, bytes, use)) return;
  outside(from, address, bytes, use, place);
}

}  // namespace

void check(uintptr_t address, size_t bytes, Use use, const void *place) {
  Worker *from = worker;
  if (from == nullptr || from->in_private(address, bytes)) return;  // the latter: most accesses by far
  check_others(*from, address, bytes, use, place);
}

void misaligned(uintptr_t address, int bytes, const void *place) {
  Worker *from = worker;
  if (from == nullptr || from->current == nullptr || from->busy || !from->launch.kernel->checked) return;
  const Busy busy(*from);
  from->stop("misaligned: " + thread_text(*from, from->current->number) + " uses " + element_text(*from, address, 0) +
             text(", whose address is not a multiple of %d bytes", bytes) + place_text(place));
}

// What is copied is written as late as when the thread has waited for it: others see it behind a barrier after that.
void mark_flight(uintptr_t address, size_t bytes, bool in_flight) {
  Worker *from = worker;
  if (!from->launch.kernel->checked) return;
  if (address < from->shared_low || address >= from->shared_high) return;
  const uint32_t subgroup_epoch = from->subgroup_epochs[from->subgroup_of(*from->current)];
  each_cell(*from, address, bytes, [&](Cell &cell, uintptr_t) {
    cell.in_flight = in_flight;
    cell.write.epoch = from->epoch;
    cell.write.subgroup_epoch = subgroup_epoch;
  });
}

}  // namespace tk::emu

// ---------------------------------------------------------------- what the instrumentation calls

using tk::emu::Use;

static void used(uintptr_t address, size_t bytes, Use use, const void *place) {
  tk::emu::check(address, bytes, use, place);
  tk::emu::note(address, bytes, use, place);
}

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void **, void *) {}
void __tsan_vptr_read(void **) {}
#if TK_EMU_ACCESS
void __sanitizer_cov_trace_pc() { tk::emu::note_step(TK_PLACE); }  // -fsanitize-coverage: a basic block begins
#endif

#define TK_USE(name, bytes, use) \
  void name(void *at) { used(reinterpret_cast<uintptr_t>(at), bytes, use, TK_PLACE); }
#define TK_USES(bytes)                                               \
  TK_USE(__tsan_read##bytes, bytes, Use::kRead)                      \
  TK_USE(__tsan_write##bytes, bytes, Use::kWrite)                    \
  TK_USE(__tsan_unaligned_read##bytes, bytes, Use::kRead)            \
  TK_USE(__tsan_unaligned_write##bytes, bytes, Use::kWrite)          \
  TK_USE(__tsan_volatile_read##bytes, bytes, Use::kAtomic)           \
  TK_USE(__tsan_volatile_write##bytes, bytes, Use::kAtomic)          \
  TK_USE(__tsan_unaligned_volatile_read##bytes, bytes, Use::kAtomic) \
  TK_USE(__tsan_unaligned_volatile_write##bytes, bytes, Use::kAtomic)
TK_USES(1)
TK_USES(2)
TK_USES(4)
TK_USES(8)
TK_USES(16)
/* clang: an access that reads and writes */
#define TK_COMPOUND(bytes)                                \
  TK_USE(__tsan_read_write##bytes, bytes, Use::kWrite)    \
  TK_USE(__tsan_unaligned_read_write##bytes, bytes, Use::kWrite)
TK_COMPOUND(1)
TK_COMPOUND(2)
TK_COMPOUND(4)
TK_COMPOUND(8)
TK_COMPOUND(16)

void __tsan_read_range(void *at, size_t bytes) { used(reinterpret_cast<uintptr_t>(at), bytes, Use::kRead, TK_PLACE); }
void __tsan_write_range(void *at, size_t bytes) { used(reinterpret_cast<uintptr_t>(at), bytes, Use::kWrite, TK_PLACE); }

// Copies of structures: the link sends these calls of the whole library here (--wrap).
void *__real_memcpy(void *to, const void *from, size_t bytes);
void *__real_memmove(void *to, const void *from, size_t bytes);
void *__real_memset(void *to, int value, size_t bytes);

void *__wrap_memcpy(void *to, const void *from, size_t bytes) {
  used(reinterpret_cast<uintptr_t>(from), bytes, Use::kRead, TK_PLACE);
  used(reinterpret_cast<uintptr_t>(to), bytes, Use::kWrite, TK_PLACE);
  return __real_memcpy(to, from, bytes);
}
void *__wrap_memmove(void *to, const void *from, size_t bytes) {
  used(reinterpret_cast<uintptr_t>(from), bytes, Use::kRead, TK_PLACE);
  used(reinterpret_cast<uintptr_t>(to), bytes, Use::kWrite, TK_PLACE);
  return __real_memmove(to, from, bytes);
}
void *__wrap_memset(void *to, int value, size_t bytes) {
  used(reinterpret_cast<uintptr_t>(to), bytes, Use::kWrite, TK_PLACE);
  return __real_memset(to, value, bytes);
}
void *__tsan_memcpy(void *to, const void *from, size_t bytes) { return __wrap_memcpy(to, from, bytes); }
void *__tsan_memmove(void *to, const void *from, size_t bytes) { return __wrap_memmove(to, from, bytes); }
void *__tsan_memset(void *to, int value, size_t bytes) { return __wrap_memset(to, value, bytes); }

// The data that compilers hand over with a finding of -fsanitize=alignment,bounds.
struct tk_emu_source { const char *file; uint32_t line, column; };
struct tk_emu_type { uint16_t kind, info; char name[1]; };
struct tk_emu_mismatch { tk_emu_source at; const tk_emu_type *type; unsigned char log_alignment, kind; };
struct tk_emu_bounds { tk_emu_source at; const tk_emu_type *array, *index; };

void __ubsan_handle_type_mismatch_v1(tk_emu_mismatch *data, uintptr_t pointer) {
  tk::emu::misaligned(pointer, 1 << data->log_alignment, TK_PLACE);
}

void tk_emu_aligned(const void *at, int bytes) {
  const uintptr_t pointer = reinterpret_cast<uintptr_t>(at);
  if (pointer % static_cast<uintptr_t>(bytes) != 0) tk::emu::misaligned(pointer, bytes, TK_PLACE);
  tk::emu::note_wide(pointer, bytes);
}

void __ubsan_handle_out_of_bounds(tk_emu_bounds *data, uintptr_t index) {
  tk::emu::Worker *from = tk::emu::worker;
  if (from == nullptr || from->current == nullptr || from->busy) return;
  const tk::emu::Busy busy(*from);
  const int bits = 1 << (data->index->info >> 1);
  const long long value = bits == 32 ? static_cast<long long>(static_cast<int32_t>(index)) : static_cast<long long>(index);
  from->stop("out of bounds: " + tk::emu::thread_text(*from, from->current->number) +
             tk::emu::text(" uses element %lld of an array %s", value, data->array->name) +
             tk::emu::place_text(TK_PLACE));
}

}  // extern "C"
