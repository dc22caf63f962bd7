// What the parts of the emulator share.
//
// A launch copies its arguments into memory of its own, each between gaps, so that every access that misses its
// buffer is seen. Workers (host threads) take blocks from the grid; a block's threads are fibers of its worker,
// which run one after the other from barrier to barrier.
#ifndef TK_EMULATOR_PARTS_H
#define TK_EMULATOR_PARTS_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "emulation.h"
#include "tk_emulator.h"

namespace tk::emu {

// ---------------------------------------------------------------- fibers (fiber.cpp)

constexpr size_t kStackBytes = 256 << 10;
constexpr uint32_t kMostLanes = 64;  // of a sub-group

// A stack that code runs on until it switches away. Not started again before it has ended or was given up.
class Fiber {
 public:
  explicit Fiber(size_t number);  // of the worker's; throws std::bad_alloc
  ~Fiber();
  Fiber(const Fiber &) = delete;
  Fiber &operator=(const Fiber &) = delete;
  void prepare(void (*entry)());  // the next resume() calls `entry`, which must not return
  void resume();                  // run until suspend()
  void suspend();                 // within the fiber: back to where resume() was called
  uintptr_t low() const { return low_; }

 private:
  uintptr_t low_ = 0, high_ = 0;
  void *fiber_ = nullptr, *caller_ = nullptr;  // what is saved of either
};

// ---------------------------------------------------------------- memory (memory.cpp)

enum class Use : uint8_t { kRead, kWrite, kAtomic };

// One access by one thread, as far as it takes to know whether another one is in order with it.
struct Access {
  uint32_t epoch = 0;          // barriers of the worker until then, from 1; 0: no access
  uint32_t subgroup_epoch = 0; // barriers of the sub-group
  uint16_t thread = 0;
  bool many = false;           // of several threads of the sub-group
  bool atomic = false;
  uint32_t place = 0;          // in the library's code
};

// What is known of some bytes of shared memory in the block that runs: of a word, or of one of its bytes.
struct Cell {
  uint64_t block = 0;  // the worker's number of the block; of another: nothing is known
  bool split = false;  // the first of a word: its bytes are looked after one by one
  bool in_flight = false;
  Access write, read, other_read;  // other_read: by another sub-group than read
};

struct SharedArray {
  std::string name, kernel;
  uintptr_t offset;  // in the library's memory for a thread
  int64_t bytes;
};

// A buffer that arguments point to. Parameters that overlap are one region.
struct Region {
  std::string names;      // "b0", or "b0, b2" for parameters that share it
  unsigned char *original;
  unsigned char *memory = nullptr;
  int64_t bytes;
  int64_t element_bytes;
  bool constant;
  // Of each element: who wrote it last, who read it; nobody needs to know of a constant region.
  std::atomic<uint64_t> *writers = nullptr, *readers = nullptr;
};

class Mapping {  // zero pages
 public:
  Mapping() = default;
  explicit Mapping(size_t bytes);  // throws std::bad_alloc
  ~Mapping();
  Mapping(Mapping &&other) noexcept : data_(other.data_), bytes_(other.bytes_) { other.data_ = nullptr; }
  Mapping &operator=(Mapping &&other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  unsigned char *data() const { return static_cast<unsigned char *>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  void *data_ = nullptr;
  size_t bytes_ = 0;
};

// ---------------------------------------------------------------- this library (image.cpp)

struct Image {
  std::string path;
  uintptr_t base;  // where it is loaded
  uintptr_t low, high;  // of all that is loaded
  uintptr_t anchor_offset;  // of `anchor` in the memory for a thread
  uintptr_t thread_bytes;
  std::vector<SharedArray> arrays;  // by offset
};
const Image &image();
extern thread_local unsigned char anchor;

// ---------------------------------------------------------------- a launch (launch.cpp)

// A block that has come to a counter.
struct Came {
  uint64_t block;       // of the grid
  uint64_t epoch;       // then
  uint32_t thread;      // which came for it
  bool released;        // whether what the block wrote before can be seen
};

struct Launch {
  const tk_emu_kernel *kernel;
  tk_emu_uint3 grid, block;
  uint32_t threads;
  std::vector<Region> regions;
  std::vector<const SharedArray *> arrays;  // of the kernel
  std::vector<void *> args;
  Mapping memory, shadow;
  uintptr_t low = 0, high = 0;  // of the regions with their gaps
  std::atomic<uint64_t> next_unit{0};
  uint64_t units;  // what workers take: blocks, or clusters of them
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::string report;
  std::mutex counting;
  std::map<uint32_t *, std::vector<Came>> came;  // to each counter, since it was zero
};

// What runs a kernel's grid; the memory of its arguments is 0. Returns what is wrong with it, or nothing.
std::string prepare(Launch &launch, const EmulatedLaunch &wanted);
void run_units(Launch &launch);  // on this host thread, until none is left or a defect was found

enum class State : uint8_t { kReady, kBarrier, kSubgroup, kCluster, kDone };  // kCluster: at a cluster's barrier
enum class Together : uint8_t { kBarrier, kShuffle, kBallot, kPerform };  // what a sub-group does

struct PendingCopy {
  unsigned char *to;
  const unsigned char *from;
  int bytes, group;
};

struct Thread {
  tk_emu_uint3 index{};
  uint32_t number = 0;
  Fiber *fiber = nullptr;
  State state = State::kReady;
  bool started = false;
  // What it waits for, and what it brings along. Two of each: a thread may be one step ahead of the others.
  int line = 0;
  Together together{};
  uint64_t lanes = 0;
  uint64_t bits[2] = {0, 0};
  void *const *operands = nullptr;
  void (*perform)(void *const *const *operands) = nullptr;
  uint32_t steps = 0;
  std::vector<PendingCopy> copies;
  int group = 0;
  bool unfenced = false;     // it has written to global memory since its last fence
  uint64_t fenced_at = 0;    // that fence, by Worker::fences; 0: none
  uint32_t fence_epoch = 0;
};

class Cluster;

class Worker {
 public:
  explicit Worker(Launch &launch);  // throws std::bad_alloc
  void run();                       // blocks until none is left or a defect was found
  void begin_block(const tk_emu_uint3 &index);
  void run_block();                 // until it has ended, or all threads wait for the cluster
  bool release(State state);        // lets threads go on that all wait there, in one line; says whether they do
  bool all_wait(State state) const;

  Launch &launch;
  tk_emu_uint3 block_index{};
  uint64_t block_number = 0;  // of the grid
  uint64_t block_serial = 0;  // of this worker, from 1
  uint32_t epoch = 1;
  std::vector<uint32_t> subgroup_epochs;
  std::vector<Thread> threads;
  Thread *current = nullptr;  // whose fiber runs
  uintptr_t private_low = 0;  // of its stack
  bool busy = false;          // the emulator itself is at work in it: its own accesses are none of the kernel's
  bool ended = false;         // the block
  // Of a block that is one of a cluster's: which one, its first epoch since the last barrier of the cluster, and
  // where its shared memory is kept while others run.
  Cluster *cluster = nullptr;
  uint32_t rank = 0, cluster_epoch = 0;
  uintptr_t kept_low = 0;
  // Of a block that has come to a counter: when, who came before, and in which epoch a fence followed.
  uint64_t fences = 0, came_at = 0;
  uint32_t came_epoch = 0, came_thread = 0, seen_epoch = 0;
  std::vector<Came> seen;
  uintptr_t shared_low, shared_high, image_base;
  uint32_t lane_bits;  // of a thread's number, its lane: sub-groups are powers of two
  Cell *cells, *parts;  // of words, side by side; three for each word: of its other bytes
  size_t last_region = 0;

  uint32_t subgroup_of(const Thread &thread) const {
    return subgroup_of(thread.number);
  }
  uint32_t subgroup_of(uint32_t number) const { return number >> lane_bits; }
  bool in_private(uintptr_t address, size_t bytes) const {
    return address >= private_low && address + bytes <= private_low + kStackBytes;
  }
  void wait();  // within a fiber: until others have come
  [[noreturn]] void stop(const std::string &report);  // within a fiber
  void tell(const std::string &report);

 private:
  void start(Thread &thread);
  void release_subgroups();
  void perform(uint32_t first);
  bool release_subgroup(uint32_t first, uint32_t end);
  std::string stuck() const;

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber *> free_;
  Mapping cell_memory_;
};

extern thread_local Worker *worker;  // of this host thread, while it runs kernels

// Marks the emulator's own work within a fiber.
class Busy {
 public:
  explicit Busy(Worker &from) : from_(from) { from_.busy = true; }
  ~Busy() { from_.busy = false; }
  Busy(const Busy &) = delete;
  Busy &operator=(const Busy &) = delete;

 private:
  Worker &from_;
};

// ---------------------------------------------------------------- clusters (cluster.cpp)

// The last read of a byte of shared memory by another block of the cluster.
struct Visit {
  uint32_t epoch = 0;  // of the block that was read from; 0: none
  uint32_t place = 0;
  uint16_t thread = 0;
  uint8_t rank = 0;    // of the block that read
};

// The blocks of a cluster. One host thread runs them, one after the other from barrier of the cluster to barrier of the
// cluster, each by a worker of its own. Shared arrays are at the same addresses for all of them, so those of the blocks
// that do not run are kept in copies, which is where others read them.
class Cluster {
 public:
  explicit Cluster(Launch &launch);  // throws std::bad_alloc
  void run();                        // clusters until none is left or a defect was found
  void *in_block(Worker &from, void *own, int rank, const void *place);
  bool try_other(Worker &from, uintptr_t address, size_t bytes, Use use, const void *place);
  // Of a write to a block's own memory: that others have not read there.
  void check_visits(Worker &from, uintptr_t address, size_t bytes, Use use, const void *place);
  const Worker *owner_of(const Worker &from, uintptr_t address) const;  // another one, whose copy the address is in
  template <class F> void each_other(const Worker &from, F fn) const {
    for (const Member &one : members_)
      if (one.block->rank != from.rank) fn(*one.block);
  }

 private:
  struct Member {
    std::unique_ptr<Worker> block;
    Mapping kept, visit_memory;  // visits: of each byte
    Visit last;                  // of all, with the first byte that was read
    uintptr_t last_address = 0;
    size_t last_bytes = 0;
    Visit *visits() const { return reinterpret_cast<Visit *>(visit_memory.data()); }
  };

  void begin(uint64_t number);
  void run_one();
  void run_member(Member &member);
  bool release();
  void check_end(const Member &member);
  std::string stuck() const;

  Launch &launch_;
  std::vector<Member> members_;  // by rank
};

// ---------------------------------------------------------------- counters of blocks (counters.cpp)

void begin_counting(Worker &from);  // a block
void fence(Worker &from);           // of the device, by the thread that runs
uint32_t come(Worker &from, uint32_t *counter, uint32_t most);  // what was there
bool has_seen(const Worker &from, uint64_t block, uint32_t thread, uint64_t epoch, bool *unreleased);
std::string left_behind(const Launch &launch);  // what is wrong with counters at the end, or nothing

// ---------------------------------------------------------------- what accesses cost (access.cpp)

// Compiled in for `tk inspect --access` alone (verify/access.py): other runs of kernels pay nothing for it.
#ifndef TK_EMU_ACCESS
#define TK_EMU_ACCESS 0
#endif

#if TK_EMU_ACCESS
void note(uintptr_t address, size_t bytes, Use use, const void *place);
void note_wide(uintptr_t address, int bytes);  // what follows there is one access of so many bytes
void note_copy(uintptr_t shared, uintptr_t global, int bytes, const void *place);  // global 0: of zeros
void note_wait(int pending, const void *place);
void note_product();
void note_step(const void *place);  // of the kernel's flow of control
bool counts_accesses();             // of this host thread's blocks, one by one
void note_barrier(const Worker &from, int line);
void fold(const Worker &from, const Thread &last);  // every lane up to `last`, of its sub-group, has gone as far as it can
#else
inline void note(uintptr_t, size_t, Use, const void *) {}
inline void note_wide(uintptr_t, int) {}
inline void note_copy(uintptr_t, uintptr_t, int, const void *) {}
inline void note_wait(int, const void *) {}
inline void note_product() {}
inline bool counts_accesses() { return false; }
inline void note_barrier(const Worker &, int) {}
inline void fold(const Worker &, const Thread &) {}
#endif

// ---------------------------------------------------------------- checks (checks.cpp), reports (report.cpp)

void check(uintptr_t address, size_t bytes, Use use, const void *place);
void misaligned(uintptr_t address, int bytes, const void *place);
void mark_flight(uintptr_t address, size_t bytes, bool in_flight);  // of an asynchronous copy to there

const char *verb(Use use);  // "reads"
uint32_t offset_of(const Worker &from, const void *place);
std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));
std::string block_text(const Worker &from);  // "block (0, 0, 0)"
std::string thread_text(const Worker &from, uint32_t number);  // "thread (1, 0, 0) of block (0, 0, 0)"
std::string fellow_text(const Worker &from, uint32_t number);  // "thread (1, 0, 0) of the same block"
std::string place_text(const void *place);  // "; line 12: `...`", empty where it is not known
std::string earlier_text(uint32_t place);    // " (line 12: `...`)"
std::string line_text(int line);
std::string global_text(const Launch &launch, uintptr_t address);  // "b0[12]", empty where no argument points
std::string element_text(const Worker &from, uintptr_t address, size_t bytes);  // the same of any memory; bytes: of an access

}  // namespace tk::emu

#endif
