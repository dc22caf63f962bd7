// The one pool of threads of a process, shared by all model libraries in it.
//
// Every library carries this code and a definition of `tk_pool_v1`, a symbol of binding STB_GNU_UNIQUE: the
// dynamic linker makes all references in the process, also of libraries opened with RTLD_LOCAL, meet in
// the definition that was loaded first, and never unloads the library that it came from. The table holds
// that library's functions, so all threads run code that stays. Its layout and that of Worker are part of
// the symbol's version: a change of either needs a `tk_pool_v2`.
#ifndef TK_POOL_H
#define TK_POOL_H

#include <atomic>
#include <cstdint>

#include "tk_plan.h"

namespace tk {

// What a worker does at the moment. Only the owner of a worker (who acquired it) posts and takes back.
enum WorkerState : uint32_t {
  kIdle = 0,    // nothing to do; the owner may post
  kPosted = 1,  // a range is offered; the worker may take it, the owner may take it back
  kTaken = 2,   // the worker runs it
  kAwaited = 3  // as kTaken, and the owner sleeps until it is done
};

constexpr uint32_t kFlushSubnormals = 1;  // of Worker.mode: subnormal numbers are zero in this range

struct alignas(128) Worker {
  // One cache line that carries the offer with its flag, so that one transfer between cores is enough.
  std::atomic<uint32_t> state;
  uint16_t tid;
  uint16_t mode;
  tk_body body;
  void *const *bufs;
  const int64_t *env;
  int64_t begin;
  int64_t end;
  unsigned char *scratch;
  void *reserved;

  // Away from the line above: written when a worker goes to sleep or is woken, otherwise only read.
  alignas(64) std::atomic<uint32_t> parked;
};

// The team of one running inference.
struct Team {
  Worker **workers;
  int32_t n_workers;
  uint32_t mode;
  unsigned char *scratch;  // of tid 0; tid t has scratch + t * scratch_stride
  int64_t scratch_stride;
};

struct Pool;

struct PoolTable {
  std::atomic<Pool *> pool;  // made at first use, and again in a forked child
  // Makes sure that `count` workers exist. Returns how many there are, fewer when the system refuses.
  int32_t (*reserve)(int32_t count);
  // Hands out up to `count` free workers; returns how many. Never waits.
  int32_t (*acquire)(int32_t count, Worker **workers);
  void (*release)(int32_t count, Worker *const *workers);
  // tk_parallel for a team with at least one worker and an extent of at least 2.
  void (*parallel)(const Team *team, tk_body body, void *const *bufs, const int64_t *env, int64_t extent);
};

extern "C" {
__attribute__((visibility("default"))) extern PoolTable tk_pool_v1;  // defined in assembler by the linking step

// What that definition points to.
int32_t tk_pool_reserve(int32_t count);
int32_t tk_pool_acquire(int32_t count, Worker **workers);
void tk_pool_release(int32_t count, Worker *const *workers);
void tk_pool_parallel(const Team *team, tk_body body, void *const *bufs, const int64_t *env, int64_t extent);
}

// Processors that the calling thread may use, at least 1.
int32_t usable_processors();

}  // namespace tk

#endif
