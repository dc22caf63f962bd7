// What the accesses of a block cost on a GPU: sectors of global memory, wavefronts of shared memory, idle lanes.
//
// The lanes of a sub-group run one after the other here. What each of them does is kept in order, then merged as
// hardware without a stack of masks would run it: of the lanes' next events always those of the lowest address in the
// code, so that lanes that skipped something wait for the others behind it (Collange, "Stack-less SIMT reconvergence
// at low cost", 2011). Basic blocks are events, too.
#include "emulator.h"

#if TK_EMU_ACCESS

#include <algorithm>
#include <cstdio>
#include <unordered_map>

#include "access_rows.h"

namespace tk::emu {
namespace {

constexpr uintptr_t kSector = 32;
constexpr uintptr_t kBanks = 32, kBankBytes = 4;
constexpr size_t kMostEvents = 1 << 17;  // of a thread between two barriers
constexpr int kWindows = 4;

struct Event {
  uint32_t place;
  uint8_t kind, bytes;
  bool flag;  // of a wait: nothing was computed since what it waits for was committed; of a copy: of zeros
  uint64_t address;
};

// A place that is used as a whole: the first access there counts with all bytes, others to them do not.
struct Window {
  uintptr_t address = 0;
  uint32_t bytes = 0, left = 0;  // left: one bit for each byte
};

struct Group {  // of asynchronous copies
  int number;
  uint64_t products;  // that the thread had computed when it was issued
};

struct Notes {  // of a thread
  std::vector<Event> events;
  Window windows[kWindows];
  int next_window = 0;
  uint64_t products = 0;  // reads of shared memory and operations of a matrix unit: what copies hide behind
  std::vector<Group> groups;
  bool cut = false;
};

struct Counts {
  std::vector<Notes> threads;  // of the first block of a cluster, of the second ...
  std::unordered_map<uint64_t, AccessRow> rows;

  Notes &of(const Worker &from, uint32_t thread) { return threads[from.rank * from.launch.threads + thread]; }

  AccessRow &row(uint64_t place, AccessKind kind, int bytes) {
    AccessRow &found = rows[place << 16 | static_cast<uint64_t>(kind) << 8 | static_cast<uint64_t>(bytes)];
    found.place = place;
    found.kind = kind;
    found.bytes = bytes;
    return found;
  }
};

thread_local Counts *counts = nullptr;

Notes *notes() {
  const Worker *from = worker;
  if (counts == nullptr || from == nullptr || from->current == nullptr || from->busy) return nullptr;
  return from->launch.kernel->checked ? &counts->of(*from, from->current->number) : nullptr;
}

uint32_t offset_of_place(const void *place) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place) - worker->image_base);
}

void keep(Notes &mine, AccessKind kind, uintptr_t address, size_t bytes, uint32_t place, bool flag = false) {
  if (mine.events.size() >= kMostEvents) {
    mine.cut = true;
    return;
  }
  const Busy busy(*worker);
  mine.events.push_back({place, static_cast<uint8_t>(kind), static_cast<uint8_t>(bytes), flag, address});
}

// Also of another block of the cluster, where it is in the same bank as in that block itself.
bool is_shared(uintptr_t address) {
  if (address >= worker->shared_low && address < worker->shared_high) return true;
  return worker->cluster != nullptr && worker->cluster->owner_of(*worker, address) != nullptr;
}
bool is_global(uintptr_t address) { return address >= worker->launch.low && address < worker->launch.high; }

AccessKind kind_of(Use use, bool shared) {
  if (use == Use::kAtomic) return shared ? AccessKind::kSharedAtomic : AccessKind::kAtomic;
  if (use == Use::kRead) return shared ? AccessKind::kSharedLoad : AccessKind::kLoad;
  return shared ? AccessKind::kSharedStore : AccessKind::kStore;
}

// Takes bytes out of a window; says whether they were in one. `whole`: of which they are the first.
bool take(Notes &mine, uintptr_t address, size_t bytes, const Window **whole) {
  *whole = nullptr;
  for (Window &window : mine.windows) {
    if (window.left == 0 || address < window.address || address + bytes > window.address + window.bytes) continue;
    const uint32_t bits = ((1u << bytes) - 1) << (address - window.address);
    if ((window.left & bits) != bits) continue;
    if (window.left == (1u << window.bytes) - 1) *whole = &window;
    window.left &= ~bits;
    return true;
  }
  return false;
}

// ---------------------------------------------------------------- merging

struct Lane {
  const Event *at, *end;
};

struct Request {
  std::vector<const Event *> lanes;
};

uint64_t sectors_of(const Request &request, uint64_t *least) {
  static thread_local std::vector<uint64_t> sectors;
  static thread_local std::vector<std::pair<uint64_t, uint64_t>> spans;
  sectors.clear();
  spans.clear();
  for (const Event *one : request.lanes) {
    if (one->flag) continue;  // takes part, and reads nothing
    spans.emplace_back(one->address, one->address + one->bytes);
    for (uint64_t n = one->address / kSector; n <= (one->address + one->bytes - 1) / kSector; ++n) sectors.push_back(n);
  }
  std::sort(sectors.begin(), sectors.end());
  std::sort(spans.begin(), spans.end());
  uint64_t bytes = 0, end = 0;
  for (const auto &[from, to] : spans) {
    const uint64_t start = std::max(from, end);
    if (to > start) bytes += to - start;
    end = std::max(end, to);
  }
  *least = (bytes + kSector - 1) / kSector;
  return static_cast<uint64_t>(std::unique(sectors.begin(), sectors.end()) - sectors.begin());
}

// Of lanes that go at once: how many words the fullest bank is asked for.
uint64_t ways_of(const Event *const *begin, const Event *const *end) {
  static thread_local std::vector<uint64_t> words;
  words.clear();
  for (; begin != end; ++begin)
    for (uint64_t n = (*begin)->address / kBankBytes; n <= ((*begin)->address + (*begin)->bytes - 1) / kBankBytes; ++n)
      words.push_back(n);
  std::sort(words.begin(), words.end());
  words.erase(std::unique(words.begin(), words.end()), words.end());
  uint64_t of_bank[kBanks] = {}, most = 0;
  for (const uint64_t word : words) most = std::max(most, ++of_bank[word % kBanks]);
  return most;
}

// Lanes go at once as far as their bytes would fill the banks: 32 of up to 4 bytes, 16 of 8, 8 of 16.
void add_wavefronts(AccessRow &row, const Request &request, const std::vector<uint32_t> &numbers) {
  const uint32_t at_once = static_cast<uint32_t>(kBanks * kBankBytes / std::max<uintptr_t>(kBankBytes, request.lanes[0]->bytes));
  for (size_t first = 0; first < request.lanes.size();) {
    size_t end = first;
    while (end < request.lanes.size() && numbers[end] / at_once == numbers[first] / at_once) ++end;
    const uint64_t ways = ways_of(&request.lanes[first], request.lanes.data() + end);
    row.units += ways;
    row.least += 1;
    row.most = std::max(row.most, ways);
    first = end;
  }
}

void add(Counts &to, const Request &request, const std::vector<uint32_t> &numbers) {
  const Event &one = *request.lanes[0];
  const AccessKind kind = static_cast<AccessKind>(one.kind);
  AccessRow &row = to.row(one.place, kind, one.bytes);
  row.requests += 1;
  row.lanes += request.lanes.size();
  switch (kind) {
    case AccessKind::kLoad:
    case AccessKind::kStore:
    case AccessKind::kAtomic:
    case AccessKind::kCopy: {
      uint64_t least = 0;
      const uint64_t sectors = sectors_of(request, &least);
      row.units += sectors;
      row.least += least;
      row.most = std::max(row.most, sectors);
      break;
    }
    case AccessKind::kSharedLoad:
    case AccessKind::kSharedStore:
    case AccessKind::kSharedAtomic:
      add_wavefronts(row, request, numbers);
      break;
    default:  // a wait is one for copies only just begun where that is so for all lanes
      row.units += std::all_of(request.lanes.begin(), request.lanes.end(), [](const Event *lane) { return lane->flag; });
  }
}

bool same_request(const Event &a, const Event &b) { return a.place == b.place && a.kind == b.kind && a.bytes == b.bytes; }
bool before(const Event &a, const Event &b) {
  if (a.place != b.place) return a.place < b.place;
  return a.kind != b.kind ? a.kind < b.kind : a.bytes < b.bytes;
}

// Where a lane's control flow goes from here; to where it waits or ends: 0.
uint32_t next_block(const Lane &lane) {
  for (const Event *one = lane.at; one != lane.end; ++one)
    if (static_cast<AccessKind>(one->kind) == AccessKind::kBranch) return one->place;
  return 0;
}

void merge(Counts &to, std::vector<Lane> &lanes) {
  Request request;
  std::vector<uint32_t> numbers;
  for (;;) {
    const Event *next = nullptr;
    for (const Lane &lane : lanes)
      if (lane.at != lane.end && (next == nullptr || before(*lane.at, *next))) next = lane.at;
    if (next == nullptr) return;
    request.lanes.clear();
    numbers.clear();
    const bool step = static_cast<AccessKind>(next->kind) == AccessKind::kBranch;
    uint32_t target = 0;
    bool diverges = false;
    for (uint32_t n = 0; n < lanes.size(); ++n) {
      Lane &lane = lanes[n];
      if (lane.at == lane.end || !same_request(*lane.at, *next)) continue;
      request.lanes.push_back(lane.at++);
      numbers.push_back(n);
      if (!step) continue;
      const uint32_t goes_to = next_block(lane);
      diverges = diverges || (numbers.size() > 1 && goes_to != target);
      target = goes_to;
    }
    add(to, request, numbers);
    if (diverges) ++to.row(request.lanes[0]->place, AccessKind::kBranch, 0).units;
  }
}

}  // namespace

// ---------------------------------------------------------------- what happens

void note(uintptr_t address, size_t bytes, Use use, const void *place) {
  Notes *mine = notes();
  if (mine == nullptr) return;
  const bool shared = is_shared(address);
  if (!shared && !is_global(address)) return;
  const AccessKind kind = kind_of(use, shared);
  if (kind == AccessKind::kSharedLoad) ++mine->products;
  const uint32_t where = offset_of_place(place);
  const Window *whole = nullptr;
  if (bytes <= 16 && take(*mine, address, bytes, &whole)) {
    if (whole != nullptr) keep(*mine, kind, whole->address, whole->bytes, where);
    return;
  }
  for (size_t done = 0; done < bytes; done += 16) keep(*mine, kind, address + done, std::min<size_t>(16, bytes - done), where);
}

void note_wide(uintptr_t address, int bytes) {
  Notes *mine = notes();
  if (mine == nullptr || bytes > 16 || (!is_shared(address) && !is_global(address))) return;
  mine->windows[mine->next_window] = {address, static_cast<uint32_t>(bytes), (1u << bytes) - 1};
  mine->next_window = (mine->next_window + 1) % kWindows;
}

void note_copy(uintptr_t shared, uintptr_t global, int bytes, const void *place) {
  Notes *mine = notes();
  if (mine == nullptr) return;
  keep(*mine, AccessKind::kCopy, global, static_cast<size_t>(bytes), offset_of_place(place), global == 0);
  keep(*mine, AccessKind::kSharedStore, shared, static_cast<size_t>(bytes), offset_of_place(place));
  const Busy busy(*worker);
  const int group = worker->current->group;
  if (mine->groups.empty() || mine->groups.back().number != group) mine->groups.push_back({group, 0});
  mine->groups.back().products = mine->products;
}

void note_wait(int pending, const void *place) {
  Notes *mine = notes();
  if (mine == nullptr) return;
  const int newest = worker->current->group - pending;
  bool some = false, at_once = false;
  for (const Group &group : mine->groups) {
    if (group.number >= newest) continue;
    some = true;
    at_once = at_once || group.products == mine->products;
  }
  mine->groups.erase(std::remove_if(mine->groups.begin(), mine->groups.end(),
                                    [=](const Group &group) { return group.number < newest; }),
                     mine->groups.end());
  if (some) keep(*mine, AccessKind::kWait, 0, 0, offset_of_place(place), at_once);
}

void note_step(const void *place) {
  if (Notes *mine = notes()) keep(*mine, AccessKind::kBranch, 0, 0, offset_of_place(place));
}

bool counts_accesses() { return counts != nullptr; }

void note_product() {
  if (Notes *mine = notes()) ++mine->products;
}

void note_barrier(const Worker &, int line) {
  if (counts != nullptr) ++counts->row(static_cast<uint64_t>(line), AccessKind::kBarrier, 0).requests;
}

void fold(const Worker &from, const Thread &last) {
  if (counts == nullptr) return;
  std::vector<Lane> lanes;
  const uint32_t first = from.subgroup_of(last) << from.lane_bits;
  for (uint32_t n = first; n <= last.number; ++n) {
    const std::vector<Event> &events = counts->of(from, n).events;
    lanes.push_back({events.data(), events.data() + events.size()});
  }
  merge(*counts, lanes);
  for (uint32_t n = first; n <= last.number; ++n) counts->of(from, n).events.clear();
}

namespace {

bool measure(const EmulatedLaunch &wanted, uint64_t unit, void (*tell)(const AccessRow &row), char *message, int64_t size) {
  Launch launch;
  std::string report = prepare(launch, wanted);
  if (report.empty()) {
    Counts mine;
    mine.threads.resize(launch.threads * static_cast<size_t>(launch.kernel->cluster));
    launch.next_unit = unit;
    launch.units = unit + 1;
    counts = &mine;
    run_units(launch);
    counts = nullptr;
    report = launch.report;
    for (const Notes &thread : mine.threads)
      if (thread.cut) ++mine.row(0, AccessKind::kCut, 0).requests;
    for (const auto &[key, row] : mine.rows) tell(row);
  }
  if (!report.empty()) std::snprintf(message, static_cast<size_t>(size), "%s: %s", wanted.function, report.c_str());
  return report.empty();
}

}  // namespace
}  // namespace tk::emu

extern "C" __attribute__((visibility("default"))) const tk::EmulationAccess tk_emulation_access_v1 = {
    tk::kEmulationVersion, tk::emu::measure};

#endif
