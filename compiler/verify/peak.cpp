// How many floating-point operations a second this machine's fused multiply-add units reach: independent chains
// of vector FMAs in registers, no memory. The upper bound that latencies of models are compared with.
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace {

typedef float Vector __attribute__((vector_size(TK_VECTOR_BYTES)));
constexpr int kLanes = TK_VECTOR_BYTES / 4;
// Enough chains to hide a latency of five cycles on two units, few enough to stay in registers.
constexpr int kChains = TK_VECTOR_REGISTERS >= 32 ? 20 : 12;
constexpr int kSteps = 20000;
constexpr double kFlopPerRound = 2.0 * kLanes * kChains * kSteps;

typedef std::chrono::steady_clock Clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

float round_of_fma(float seed) {
  Vector sums[kChains];
  for (int i = 0; i < kChains; ++i) sums[i] = Vector{} + seed * static_cast<float>(i);
  const Vector factor = Vector{} + 0.999f;
  const Vector term = Vector{} + seed;
  for (int step = 0; step < kSteps; ++step) {
#pragma GCC unroll 20
    for (int i = 0; i < kChains; ++i) sums[i] = sums[i] * factor + term;
  }
  Vector total = sums[0];
  for (int i = 1; i < kChains; ++i) total += sums[i];
  return total[0];
}

}  // namespace

// GFLOP/s of `threads` threads together: the best of rounds that all threads start at once, for `seconds`.
extern "C" __attribute__((visibility("default"))) double tk_peak_gflops(int threads, double seconds) {
  std::vector<double> best(static_cast<size_t>(threads), 1e30);
  std::atomic<int> ready{0};
  std::atomic<float> sink{0.0f};
  auto work = [&](size_t index) {
    ready.fetch_add(1);
    while (ready.load() < threads) std::this_thread::yield();
    const Clock::time_point start = Clock::now();
    float value = 1e-3f;
    while (seconds_since(start) < seconds) {
      const Clock::time_point round_start = Clock::now();
      value = round_of_fma(value * 1e-6f + 1e-3f);
      const double elapsed = seconds_since(round_start);
      if (elapsed < best[index]) best[index] = elapsed;
    }
    sink.store(value);
  };
  std::vector<std::thread> pool;
  for (int index = 1; index < threads; ++index) pool.emplace_back(work, static_cast<size_t>(index));
  work(0);
  for (std::thread &one : pool) one.join();
  double total = 0.0;
  for (double elapsed : best) total += kFlopPerRound / elapsed * 1e-9;
  return total;
}
