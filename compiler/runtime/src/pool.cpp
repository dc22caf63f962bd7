#include "pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <climits>
#include <mutex>
#include <new>

#include "float_mode.h"

namespace tk {
namespace {

constexpr int32_t kMaxWorkers = 1023;
constexpr size_t kStackBytes = size_t{2} << 20;

// How long a thread polls before it sleeps. Long enough to bridge the serial parts of a model and the gap
// between two inferences in a row, short enough to leave the processor to others on a busy machine.
constexpr int64_t kSpinMaxNs = 100 * 1000;
constexpr int64_t kSpinMinNs = 2 * 1000;
constexpr int64_t kPreemptedNs = 200 * 1000;  // two looks at the clock so far apart: someone else ran
constexpr int kPollsPerLook = 64;

inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  __asm__ volatile("yield");
#endif
}

int64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

void futex_wait(std::atomic<uint32_t> *word, uint32_t expected) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t> *word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t *>(word), FUTEX_WAKE_PRIVATE, 1, nullptr, nullptr, 0);
}

// Orders "post, then look whether anyone sleeps" against "note that I sleep, then look for a post". Thread
// sanitizer does not know fences; under it the accesses themselves are sequentially consistent.
#if defined(__SANITIZE_THREAD__)
#define TK_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TK_TSAN 1
#endif
#endif
#ifdef TK_TSAN
constexpr std::memory_order kPost = std::memory_order_seq_cst;
constexpr std::memory_order kLook = std::memory_order_seq_cst;
inline void full_fence() {}
#else
constexpr std::memory_order kPost = std::memory_order_release;
constexpr std::memory_order kLook = std::memory_order_acquire;
inline void full_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
#endif

// Whether a poller offers its processor to others at each look at the clock. A worker without work must:
// when it was woken on the processor of the thread that it is to help, polling would keep that thread
// from running. A thread that waits for the end of its loop must not: others would take a whole time slice.
enum class Polling { kPolite, kEager };

// Polls until `done()`; false when the time is over or the thread lost its processor. `budget` adapts: on a
// machine that takes the processor away from pollers, they soon stop polling, and slowly try again.
template <typename Done>
bool spin(int64_t *budget, Polling polling, Done done) {
  int64_t start = 0, last = 0;
  for (;;) {
    for (int i = 0; i < kPollsPerLook; ++i) {
      if (done()) return true;
      relax();
    }
    const int64_t now = now_ns();
    if (start == 0) {
      start = last = now;
      continue;
    }
    if (now - last > kPreemptedNs) {
      *budget = *budget / 4 > kSpinMinNs ? *budget / 4 : kSpinMinNs;
      return done();
    }
    if (now - start > *budget) return done();
    last = now;
    if (polling == Polling::kPolite) {
      sched_yield();
      last = now_ns();
    }
  }
}

void grow(int64_t *budget) {
  *budget += *budget / 4;
  if (*budget > kSpinMaxNs) *budget = kSpinMaxNs;
}

void run_posted(Worker *self, FloatMode *mode) {
  const FloatMode wanted = (self->mode & kFlushSubnormals) != 0 ? kFloatFlush : kFloatDefault;
  if (wanted != *mode) {
    set_float_mode(wanted);
    *mode = wanted;
  }
  self->body(self->bufs, self->env, self->begin, self->end, self->scratch, self->tid);
  if (self->state.exchange(kIdle, std::memory_order_acq_rel) == kAwaited) futex_wake(&self->state);
}

void park(Worker *self) {
  self->parked.store(1, kPost);
  full_fence();
  if (self->state.load(kLook) == kPosted) {
    self->parked.store(0, std::memory_order_relaxed);
    return;
  }
  while (self->parked.load(std::memory_order_acquire) == 1) futex_wait(&self->parked, 1);
}

void *worker_main(void *argument) {
  Worker *self = static_cast<Worker *>(argument);
  FloatMode mode = kFloatDefault;
  set_float_mode(mode);
  int64_t budget = kSpinMaxNs;
  const auto posted = [self] { return self->state.load(std::memory_order_acquire) == kPosted; };
  for (;;) {
    if (!spin(&budget, Polling::kPolite, posted)) {
      park(self);
      grow(&budget);
      continue;
    }
    uint32_t expected = kPosted;
    if (self->state.compare_exchange_strong(expected, kTaken, std::memory_order_acquire)) run_posted(self, &mode);
  }
  return nullptr;
}

bool start_thread(Worker *worker) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0) return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, kStackBytes);
  // Signals belong to the threads of the program, not to ours.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  pthread_t thread;
  const int status = pthread_create(&thread, &attributes, worker_main, worker);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_attr_destroy(&attributes);
  if (status != 0) return false;
#if defined(__GLIBC__)
  pthread_setname_np(thread, "tk-pool");
#endif
  return true;
}

}  // namespace

// Never destroyed: its threads run until the process ends.
struct Pool {
  std::mutex mutex;
  int32_t count = 0;   // workers that exist
  int32_t wanted = 0;  // the most that anyone reserved
  int32_t processors = 1;
  int32_t n_free = 0;
  Worker *free[kMaxWorkers];  // a stack: who ran last is most likely still awake

  // The caller holds the mutex.
  bool add_worker() {
    if (count >= kMaxWorkers) return false;
    Worker *worker = new (std::nothrow) Worker();
    if (worker == nullptr) return false;
    if (!start_thread(worker)) {
      delete worker;
      return false;
    }
    ++count;
    free[n_free++] = worker;
    return true;
  }
};

namespace {

// A forked child has none of the threads, and perhaps a mutex that no one will unlock: it starts anew.
void forget_pool_after_fork() { tk_pool_v1.pool.store(nullptr, std::memory_order_relaxed); }

Pool *the_pool() {
  Pool *pool = tk_pool_v1.pool.load(std::memory_order_acquire);
  if (pool != nullptr) return pool;
  Pool *fresh = new (std::nothrow) Pool();
  if (fresh == nullptr) return nullptr;
  fresh->processors = usable_processors();
  if (!tk_pool_v1.pool.compare_exchange_strong(pool, fresh, std::memory_order_acq_rel)) {
    delete fresh;
    return pool;
  }
  static std::once_flag once;
  std::call_once(once, [] { pthread_atfork(nullptr, nullptr, forget_pool_after_fork); });
  return fresh;
}

// Waits until a worker that took its range has finished it.
void join(Worker *worker, int64_t budget) {
  const auto finished = [worker] { return worker->state.load(std::memory_order_acquire) == kIdle; };
  while (!spin(&budget, Polling::kEager, finished)) {
    uint32_t expected = kTaken;
    if (!worker->state.compare_exchange_strong(expected, kAwaited, std::memory_order_acq_rel)) continue;
    while (worker->state.load(std::memory_order_acquire) == kAwaited) futex_wait(&worker->state, kAwaited);
  }
}

struct Offer {
  tk_body body;
  void *const *bufs;
  const int64_t *env;
};

void post(const Team *team, int32_t index, const Offer &offer, int64_t begin, int64_t end) {
  Worker *worker = team->workers[index];
  worker->tid = static_cast<uint16_t>(index + 1);
  worker->mode = static_cast<uint16_t>(team->mode);
  worker->body = offer.body;
  worker->bufs = offer.bufs;
  worker->env = offer.env;
  worker->begin = begin;
  worker->end = end;
  worker->scratch = team->scratch + (index + 1) * team->scratch_stride;
  worker->state.store(kPosted, kPost);
}

void wake(Worker *worker) {
  if (worker->parked.load(kLook) == 0) return;
  if (worker->parked.exchange(0, std::memory_order_acq_rel) == 1) futex_wake(&worker->parked);
}

}  // namespace

int32_t usable_processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) {
    const int count = CPU_COUNT(&set);
    if (count > 0) return count;
  }
  const long online = sysconf(_SC_NPROCESSORS_ONLN);  // more processors than a cpu_set_t has bits
  return online > 0 && online < INT32_MAX ? static_cast<int32_t>(online) : 1;
}

extern "C" {

int32_t tk_pool_reserve(int32_t count) {
  Pool *pool = the_pool();
  if (pool == nullptr) return 0;
  const std::lock_guard<std::mutex> lock(pool->mutex);
  if (pool->wanted < count) pool->wanted = count;
  while (pool->count < count && pool->add_worker()) {
  }
  return pool->count;
}

int32_t tk_pool_acquire(int32_t count, Worker **workers) {
  Pool *pool = the_pool();
  if (pool == nullptr) return 0;
  const std::lock_guard<std::mutex> lock(pool->mutex);
  // Inferences that run at the same time may together use all processors, and no more threads than that,
  // unless one of them alone asked for more.
  const int32_t limit = pool->wanted > pool->processors - 1 ? pool->wanted : pool->processors - 1;
  while (pool->n_free < count && pool->count < limit && pool->add_worker()) {
  }
  const int32_t given = count < pool->n_free ? count : pool->n_free;
  for (int32_t i = 0; i < given; ++i) workers[i] = pool->free[--pool->n_free];
  return given;
}

void tk_pool_release(int32_t count, Worker *const *workers) {
  Pool *pool = the_pool();
  if (pool == nullptr) return;
  const std::lock_guard<std::mutex> lock(pool->mutex);
  for (int32_t i = count - 1; i >= 0; --i) pool->free[pool->n_free++] = workers[i];
}

// One range per thread. The caller runs the first, then every range that its worker has not begun (it sleeps,
// or the system has not given it a processor), then waits for those that have.
void tk_pool_parallel(const Team *team, tk_body body, void *const *bufs, const int64_t *env, int64_t extent) {
  const int64_t threads = team->n_workers + int64_t{1};
  const int64_t n = extent < threads ? extent : threads;
  const int64_t size = extent / n, rest = extent % n;
  const auto start_of = [size, rest](int64_t i) { return i * size + (i < rest ? i : rest); };
  const int32_t posted = static_cast<int32_t>(n) - 1;
  const Offer offer = {body, bufs, env};
  for (int32_t i = 0; i < posted; ++i) post(team, i, offer, start_of(i + 1), start_of(i + 2));
  full_fence();
  for (int32_t i = 0; i < posted; ++i) wake(team->workers[i]);

  body(bufs, env, 0, start_of(1), team->scratch, 0);

  for (int32_t i = posted - 1; i >= 0; --i) {
    Worker *worker = team->workers[i];
    uint32_t expected = kPosted;
    if (worker->state.load(std::memory_order_relaxed) == kPosted &&
        worker->state.compare_exchange_strong(expected, kIdle, std::memory_order_acquire))
      body(bufs, env, start_of(i + 1), start_of(i + 2), team->scratch, 0);
  }
  const Pool *pool = tk_pool_v1.pool.load(std::memory_order_relaxed);
  const bool crowded = pool != nullptr && threads > pool->processors;
  for (int32_t i = 0; i < posted; ++i) join(team->workers[i], crowded ? kSpinMinNs : kSpinMaxNs);
}

}  // extern "C"
}  // namespace tk
