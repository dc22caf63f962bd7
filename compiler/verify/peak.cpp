// What this machine reaches at best: fused multiply-adds, the clock behind them, reading, copying and storing
// memory. Bounds that latencies of models are compared with, and that facts about processors are checked by.
//
// Every number is the best of many short rounds: others who use the machine make rounds longer, never shorter.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

// A value that the optimiser knows nothing of, in a register.
#if defined(__AVX512F__)
#define TK_OPAQUE(vector) asm volatile("" : "+v"(vector))
#elif defined(__x86_64__)
#define TK_OPAQUE(vector) asm volatile("" : "+x"(vector))
#else
#define TK_OPAQUE(vector) asm volatile("" : "+w"(vector))
#endif

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

typedef float Floats __attribute__((vector_size(TK_VECTOR_BYTES)));
typedef int32_t Bits __attribute__((vector_size(TK_VECTOR_BYTES)));
constexpr int kLanes = TK_VECTOR_BYTES / 4;
// Enough chains to hide a latency of five cycles on two units, few enough to stay in registers.
constexpr int kChains = TK_VECTOR_REGISTERS >= 32 ? 20 : 12;
constexpr int kSteps = 20000;

constexpr size_t kStreams = 8;
constexpr size_t kBlock = kStreams * sizeof(Bits);

typedef std::chrono::steady_clock Clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds of the shortest round within `seconds`, at least one.
template <class Round> double shortest(double seconds, Round round) {
  double best = 1e30;
  const Clock::time_point start = Clock::now();
  do {
    const Clock::time_point round_start = Clock::now();
    round();
    const double spent = seconds_since(round_start);
    best = spent < best ? spent : best;
  } while (seconds_since(start) < seconds);
  return best;
}

// The sum over all threads of what `work(index, start)` gives; `start` waits until all of them are ready.
template <class Work> double together(int threads, Work work) {
  std::vector<double> rates(static_cast<size_t>(threads));
  std::atomic<int> ready{0};
  auto one = [&](size_t index) {
    rates[index] = work([&] {
      ready.fetch_add(1);
      while (ready.load() < threads) std::this_thread::yield();
    });
  };
  std::vector<std::thread> pool;
  for (int index = 1; index < threads; ++index) pool.emplace_back(one, static_cast<size_t>(index));
  one(0);
  for (std::thread &thread : pool) thread.join();
  double total = 0.0;
  for (double rate : rates) total += rate;
  return total;
}

// `chains` sums that go on independently of each other, all in registers.
template <int chains> void multiply_add() {
  Floats sums[chains] = {}, factor = Floats{} + 1e-3f;
  const Floats other = Floats{} + 1e-3f;
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 20
    for (int i = 0; i < chains; ++i) {
      TK_OPAQUE(factor);  // else the product were computed once
      sums[i] += factor * other;
    }
  }
  for (int i = 0; i < chains; ++i) TK_OPAQUE(sums[i]);
}

// Each addition waits for the one before: a cycle each, on every processor.
void add_in_a_row() {
  uint64_t sum = 0, term = 1;
  asm volatile("" : "+r"(term));
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      sum += term;
      asm volatile("" : "+r"(sum));
    }
  }
}

Bits load(const char *from) {
  Bits value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

void store(char *to, Bits value) { std::memcpy(to, &value, sizeof value); }

// `places` at once, as far apart as they can be: one suits the first caches, several have more pages in flight.
template <size_t places> void read_all(const char *data, size_t bytes) {
  constexpr size_t kEach = kStreams / places;
  Bits seen[kStreams] = {};
  const size_t part = bytes / places;
  for (size_t at = 0; at < part; at += kEach * sizeof(Bits))
#pragma GCC unroll 8
    for (size_t i = 0; i < kStreams; ++i) seen[i] |= load(data + i / kEach * part + at + i % kEach * sizeof(Bits));
  for (size_t i = 0; i < kStreams; ++i) TK_OPAQUE(seen[i]);
}

void copy_half(char *data, size_t bytes) {
  const size_t half = bytes / 2;
  for (size_t at = 0; at < half; at += kBlock)
#pragma GCC unroll 8
    for (size_t i = 0; i < kStreams; ++i)
      store(data + half + at + i * sizeof(Bits), load(data + at + i * sizeof(Bits)));
}

void store_all(char *data, size_t bytes) {
  Bits value = {};
  TK_OPAQUE(value);
  for (size_t at = 0; at < bytes; at += kBlock)
#pragma GCC unroll 8
    for (size_t i = 0; i < kStreams; ++i) store(data + at + i * sizeof(Bits), value);
}

// Bytes a second of all threads together, each over a buffer of its own.
template <class Pass> double bytes_per_second(int threads, size_t bytes, double seconds, Pass pass) {
  bytes = bytes / (2 * kBlock) * (2 * kBlock);
  return together(threads, [&](auto start) {
    char *data = static_cast<char *>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    std::memset(data, 0, bytes);
    const size_t repeats = bytes < (1u << 22) ? (1u << 22) / bytes : 1;
    start();
    const double spent = shortest(seconds, [&] {
      for (size_t i = 0; i < repeats; ++i) {
        pass(data, bytes);
        asm volatile("" : : "r"(data) : "memory");
      }
    });
    std::free(data);
    return static_cast<double>(bytes * repeats) / spent;
  });
}

}  // namespace

// Operations a second of `threads` threads together, a multiply-add counted as two.
EXPORT double tk_peak_flops(int threads, double seconds) {
  return together(threads, [&](auto start) {
    start();
    return 2.0 * kLanes * kChains * kSteps / shortest(seconds, multiply_add<kChains>);
  });
}

// Cycles a second, under the load of vectors: some processors are slower then.
EXPORT double tk_clock(double seconds) {
  double best = 1e30;
  shortest(seconds, [&] {
    multiply_add<kChains>();
    const double spent = shortest(0.0, add_in_a_row);
    best = spent < best ? spent : best;
  });
  return 16.0 * kSteps / best;
}

// Seconds from a multiply-add to the next one that adds to its result.
EXPORT double tk_fma_seconds(double seconds) { return shortest(seconds, multiply_add<1>) / kSteps; }

EXPORT double tk_read_rate(int threads, size_t bytes, double seconds) {
  const double one = bytes_per_second(threads, bytes, seconds / 2, read_all<1>);
  const double four = bytes_per_second(threads, bytes, seconds / 2, read_all<4>);
  return one > four ? one : four;
}

// Bytes read plus bytes written.
EXPORT double tk_copy_rate(int threads, size_t bytes, double seconds) {
  return bytes_per_second(threads, bytes, seconds, copy_half);
}

EXPORT double tk_store_rate(int threads, size_t bytes, double seconds) {
  return bytes_per_second(threads, bytes, seconds, store_all);
}
