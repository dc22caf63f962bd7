// Compares the vector functions of tk_math.h with the C library's double precision, over all or every n-th float.
//
//   math_sweep FUNCTION STRIDE [THREADS]   ->  one line: worst error in ulp, its input, result, reference
//   math_sweep speed FUNCTION              ->  nanoseconds per element
//
// LANES is given by -DLANES. The reference is short-circuited where a function is constant or linear to well below
// a thousandth of an ulp; that is most of the 2^32 inputs.
#include "tk_math.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#ifndef LANES
#define LANES 16
#endif

namespace {

using V = tk_vec<float, LANES>;

float lane(V v, int i) {
    float values[LANES];
    std::memcpy(values, &v, sizeof values);
    return values[i];
}

V from(const float *values) { return tk_load<V>(values); }

double exp_reference(double x) { return x > 105 ? INFINITY : x < -105 ? 0.0 : std::exp(x); }
double log_reference(double x) { return std::log(x); }
double tanh_reference(double x) {
    const double size = std::fabs(x);
    return size > 12 ? std::copysign(1.0, x) : size < 0x1p-20 ? x * (1 - x * x / 3) : std::tanh(x);
}
double erf_reference(double x) {
    const double size = std::fabs(x), slope = 1.1283791670955126;
    return size > 5 ? std::copysign(1.0, x) : size < 0x1p-20 ? slope * x * (1 - x * x / 3) : std::erf(x);
}
double sigmoid_reference(double x) { return x > 40 ? 1.0 : x < -110 ? 0.0 : 1.0 / (1.0 + std::exp(-x)); }
double sqrt_reference(double x) { return std::sqrt(x); }
double rsqrt_reference(double x) { return 1.0 / std::sqrt(x); }
double floor_reference(double x) { return std::floor(x); }
double ceil_reference(double x) { return std::ceil(x); }
double round_reference(double x) { return std::nearbyint(x); }
double trunc_reference(double x) { return std::trunc(x); }
double sin_reference(double x) { return std::sin(x); }
double cos_reference(double x) { return std::cos(x); }

struct Function {
    const char *name;
    V (*vector)(V);
    double (*reference)(double);
};

#define ENTRY(name) {#name, [](V v) { return tk_##name(v); }, name##_reference}
const Function functions[] = {
    ENTRY(exp),   ENTRY(log),  ENTRY(tanh),  ENTRY(erf),   ENTRY(sigmoid), ENTRY(sqrt), ENTRY(rsqrt),
    ENTRY(floor), ENTRY(ceil), ENTRY(round), ENTRY(trunc), ENTRY(sin),     ENTRY(cos),
};

// Error in units of the last place of the f32 nearest to `reference`; infinite where the kind of value differs.
double error_in_ulp(float result, double reference) {
    const float nearest = (float)reference;
    if (std::isnan(nearest)) return std::isnan(result) ? 0.0 : INFINITY;
    if (result == nearest) return std::signbit(result) == std::signbit(nearest) ? 0.0 : INFINITY;
    if (std::isnan(result)) return INFINITY;
    // The first value too big for f32 counts as 2^128, so that infinity and the largest float are neighbours.
    const double got = std::isinf(result) ? std::copysign(0x1p128, result) : result;
    const double want = std::isinf(nearest) ? std::copysign(0x1p128, reference) : reference;
    int exponent = 0;
    std::frexp(want, &exponent);
    const double ulp = std::ldexp(1.0, (exponent - 1 < -126 ? -126 : exponent - 1) - 23);
    return std::fabs(got - want) / ulp;
}

struct Worst {
    double error = -1.0, reference = 0.0;
    uint32_t input = 0;
    float result = 0.0f;
};

constexpr uint64_t block_floats = 1 << 20;

// All inputs `stride * k` of the range: inputs of one vector are neighbours in that sequence.
void sweep_block(const Function &function, uint64_t first, uint64_t last, uint64_t stride, Worst &worst) {
    for (uint64_t at = first; at < last; at += LANES * stride) {
        float inputs[LANES];
        for (int i = 0; i < LANES; i++) {
            const uint32_t bits = (uint32_t)(at + i * stride);
            std::memcpy(&inputs[i], &bits, 4);
        }
        const V results = function.vector(from(inputs));
        for (int i = 0; i < LANES; i++) {
            const double reference = function.reference((double)inputs[i]);
            const float result = lane(results, i);
            const double error = error_in_ulp(result, reference);
            if (error > worst.error) {
                worst.error = error;
                worst.reference = reference;
                std::memcpy(&worst.input, &inputs[i], 4);
                worst.result = result;
            }
        }
    }
}

Worst sweep(const Function &function, uint64_t stride, int threads) {
    std::atomic<uint64_t> next{0};
    std::vector<Worst> found(threads);
    const uint64_t all = uint64_t{1} << 32, block = block_floats * stride;
    auto work = [&](int id) {
        for (uint64_t first; (first = next.fetch_add(block)) < all;)
            sweep_block(function, first, first + block < all ? first + block : all, stride, found[id]);
    };
    std::vector<std::thread> running;
    for (int id = 0; id < threads; id++) running.emplace_back(work, id);
    for (std::thread &thread : running) thread.join();
    Worst worst;
    for (const Worst &one : found)
        if (one.error > worst.error) worst = one;
    return worst;
}

// A buffer that stays in the first-level cache, filled with values in the range where the function works hardest.
double nanoseconds(const Function &function) {
    constexpr int size = 4096, rounds = 2000;
    alignas(64) static float data[size], results[size];
    for (int i = 0; i < size; i++) data[i] = 0.01f + 3.0f * (float)i / size;
    double best = 1e9;
    for (int attempt = 0; attempt < 20; attempt++) {
        const auto start = std::chrono::steady_clock::now();
        for (int round = 0; round < rounds; round++) {
            for (int i = 0; i < size; i += LANES) tk_store(results + i, function.vector(tk_load<V>(data + i)));
            asm volatile("" : : "r"(results) : "memory");
        }
        const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
        const double each = spent.count() / rounds / size;
        best = each < best ? each : best;
    }
    return best;
}

const Function &find(const char *name) {
    for (const Function &function : functions)
        if (std::strcmp(function.name, name) == 0) return function;
    std::fprintf(stderr, "no function is called %s\n", name);
    std::exit(2);
}

}  // namespace

int main(int count, char **arguments) {
    if (count == 3 && std::strcmp(arguments[1], "speed") == 0) {
        std::printf("%.4f\n", nanoseconds(find(arguments[2])));
        return 0;
    }
    if (count < 3) {
        std::fprintf(stderr, "usage: math_sweep FUNCTION STRIDE [THREADS] | math_sweep speed FUNCTION\n");
        return 2;
    }
    const uint64_t stride = std::strtoull(arguments[2], nullptr, 10);
    const Worst worst = sweep(find(arguments[1]), stride, count > 3 ? std::atoi(arguments[3]) : 1);
    float input;
    std::memcpy(&input, &worst.input, 4);
    std::printf("%.4f %08x %a %a %a\n", worst.error, worst.input, input, worst.result, worst.reference);
    return 0;
}
