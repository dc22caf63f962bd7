// Times tk_parallel: one line per case with the mean, median, p90, p99 and maximum of one region in microseconds.
// Usage: parallel_region THREADS GAP_US WORK_NS REGIONS
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "tk_model.h"
#include "tk_plan.h"

namespace {

int64_t gap_ns, work_ns;
std::vector<int64_t> times;

int64_t now() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1000000000 + t.tv_nsec;
}

void wait(int64_t ns) {
  if (ns <= 0) return;
  const int64_t start = now();
  while (now() - start < ns) {
  }
}

void body(void *const *, const int64_t *, int64_t begin, int64_t end, unsigned char *, int) {
  for (int64_t i = begin; i < end; ++i) wait(work_ns);
}

void kernel(void *const *bufs, tk_exec *exec) {
  for (int64_t &time : times) {
    wait(gap_ns);
    const int64_t start = now();
    tk_parallel(exec, body, bufs, nullptr, tk_threads(exec));
    time = now() - start;
  }
}

const tk_step kSteps[] = {{kernel, 0, 0, 0, 0}};

}  // namespace

const tk_plan tk_plan_model = {TK_PLAN_VERSION, 0,      0,       0,       1,       0, 0, 0, nullptr,
                               nullptr,         nullptr, kSteps, nullptr, nullptr, nullptr, 0, 64, 0, nullptr, 0, 0, 0, 0, 0, nullptr, 0, 0, nullptr};

int main(int argc, char **argv) {
  if (argc != 5) return 2;
  tk_context_options options = {sizeof options, std::atoi(argv[1]), 0, nullptr};
  gap_ns = 1000 * std::atoll(argv[2]);
  work_ns = std::atoll(argv[3]);
  times.resize(static_cast<size_t>(std::atoll(argv[4])));
  tk_model *model;
  tk_context *context;
  if (tk_model_open_v1(&model) != TK_OK || tk_context_open_v1(model, &options, &context) != TK_OK ||
      tk_context_run_v1(context, nullptr, 0, nullptr, 0) != TK_OK) {
    std::fprintf(stderr, "%s\n", tk_last_error_v1());
    return 1;
  }
  double sum = 0;
  for (const int64_t time : times) sum += static_cast<double>(time);
  const double mean = 1e-3 * sum / static_cast<double>(times.size());
  std::sort(times.begin(), times.end());
  const auto at = [](double part) { return 1e-3 * static_cast<double>(times[static_cast<size_t>(part * static_cast<double>(times.size() - 1))]); };
  std::printf("%.3f %.3f %.3f %.3f %.3f\n", mean, at(0.5), at(0.9), at(0.99), at(1.0));
  tk_context_close_v1(context);
  tk_model_close_v1(model);
}
