// How fast this machine reads and copies memory: the bound of kernels that compute little.
#include "tk_vector.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace {

typedef tk_vec<float, TK_VECTOR_BYTES / 4> Vector;
typedef std::chrono::steady_clock Clock;
constexpr size_t kStreams = 8;
constexpr size_t kBlock = kStreams * sizeof(Vector);

// `kPlaces` at once, as far apart as they can be: one suits the first caches, several have more pages in flight.
template <size_t kPlaces> float read_all(const char *data, size_t bytes) {
  constexpr size_t kEach = kStreams / kPlaces;
  Vector sums[kStreams] = {};
  const size_t part = bytes / kPlaces;
  for (size_t at = 0; at < part; at += kEach * sizeof(Vector))
#pragma GCC unroll 8
    for (size_t i = 0; i < kStreams; ++i)
      sums[i] += tk_load<Vector>(data + i / kEach * part + at + i % kEach * sizeof(Vector));
  for (size_t i = 1; i < kStreams; ++i) sums[0] += sums[i];
  return tk_reduce_add(sums[0]);
}

void copy_half(char *data, size_t bytes) {
  const size_t half = bytes / 2;
  for (size_t at = 0; at < half; at += kBlock)
    for (size_t i = 0; i < kStreams; ++i)
      tk_store(data + half + at + i * sizeof(Vector), tk_load<Vector>(data + at + i * sizeof(Vector)));
}

// GB/s of all threads together over private buffers of `bytes` each: the best pass of each thread, summed.
template <class Pass> double rate(int threads, size_t bytes, double seconds, Pass pass) {
  bytes = bytes / (2 * kBlock) * (2 * kBlock);
  std::vector<double> rates(static_cast<size_t>(threads));
  std::atomic<int> ready{0};
  auto work = [&](size_t index) {
    char *data = static_cast<char *>(std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096));
    std::memset(data, 0, bytes);
    ready.fetch_add(1);
    while (ready.load() < threads) std::this_thread::yield();
    const size_t repeats = bytes < (1u << 24) ? (1u << 24) / bytes : 1;
    double best = 1e30;
    const Clock::time_point start = Clock::now();
    while (std::chrono::duration<double>(Clock::now() - start).count() < seconds) {
      const Clock::time_point pass_start = Clock::now();
      for (size_t i = 0; i < repeats; ++i) {
        pass(data, bytes);
        asm volatile("" : : "r"(data) : "memory");
      }
      const double spent = std::chrono::duration<double>(Clock::now() - pass_start).count() / repeats;
      best = spent < best ? spent : best;
    }
    rates[index] = bytes / best * 1e-9;
    std::free(data);
  };
  std::vector<std::thread> pool;
  for (int index = 1; index < threads; ++index) pool.emplace_back(work, static_cast<size_t>(index));
  work(0);
  for (std::thread &one : pool) one.join();
  double total = 0.0;
  for (double one : rates) total += one;
  return total;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT double read_rate(int threads, size_t bytes, double seconds) {
  std::atomic<float> sink{0.0f};
  const double one = rate(threads, bytes, seconds / 2, [&](char *p, size_t size) { sink.store(read_all<1>(p, size)); });
  const double four = rate(threads, bytes, seconds / 2, [&](char *p, size_t size) { sink.store(read_all<4>(p, size)); });
  return one > four ? one : four;
}

// Bytes read plus bytes written.
EXPORT double copy_rate(int threads, size_t bytes, double seconds) {
  return rate(threads, bytes, seconds, [](char *data, size_t size) { copy_half(data, size); });
}
