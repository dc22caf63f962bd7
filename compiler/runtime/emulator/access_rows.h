// What `compiler/verify/access.py` asks of an emulation that was built to count accesses (TK_EMU_ACCESS=1).
#ifndef TK_EMULATION_ACCESS_ROWS_H
#define TK_EMULATION_ACCESS_ROWS_H

#include <cstdint>

#include "emulation.h"

namespace tk {

enum class AccessKind : int32_t {
  kLoad,          // global memory
  kStore,
  kAtomic,
  kCopy,          // what an asynchronous copy reads
  kSharedLoad,
  kSharedStore,   // also what an asynchronous copy writes
  kSharedAtomic,
  kWait,          // for asynchronous copies
  kBarrier,
  kBranch,        // control flow: a step from one basic block to the next
  kCut,           // threads whose accesses were too many to keep
};

// Sums over the requests of one place in a kernel, of one block or one cluster of blocks. A request: what the lanes of
// a sub-group do at once.
struct AccessRow {
  uint64_t place;  // in the library's code: behind the call of the instrumentation; of a barrier its line
  AccessKind kind;
  int32_t bytes;   // of a lane
  uint64_t requests, lanes;
  // Global memory: 32-byte sectors, the least for these bytes, and the most of a request.
  // Shared memory: wavefronts, the least, and the most ways of a bank conflict. Waits: those for copies behind which
  // no product was computed. Branches: those whose lanes go different ways.
  uint64_t units, least, most;
};

struct EmulationAccess {
  int32_t version;  // kEmulationVersion
  // Runs one block of a grid, or one cluster where blocks form clusters, on memory that holds 0: the pointers of the
  // arguments are only told apart. `tell` gets
  // every row. False: a defect was found or the launch is not possible, as by Emulation::launch.
  bool (*measure)(const EmulatedLaunch &launch, uint64_t unit, void (*tell)(const AccessRow &row), char *message,
                  int64_t size);
};

constexpr char kEmulationAccessSymbol[] = "tk_emulation_access_v1";

}  // namespace tk

#endif
