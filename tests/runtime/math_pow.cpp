// Compares tk_pow with the C library's double precision: all pairs of special values, then a dense sample.
//
//   math_pow PAIRS [THREADS]   ->  one line: worst error in ulp, x, y, result, reference
#include "tk_math.h"

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

double error_in_ulp(float result, double reference) {
    const float nearest = (float)reference;
    if (std::isnan(nearest)) return std::isnan(result) ? 0.0 : INFINITY;
    if (result == nearest) return std::signbit(result) == std::signbit(nearest) ? 0.0 : INFINITY;
    if (std::isnan(result)) return INFINITY;
    const double got = std::isinf(result) ? std::copysign(0x1p128, result) : result;
    const double want = std::isinf(nearest) ? std::copysign(0x1p128, reference) : reference;
    int exponent = 0;
    std::frexp(want, &exponent);
    return std::fabs(got - want) / std::ldexp(1.0, (exponent - 1 < -126 ? -126 : exponent - 1) - 23);
}

struct Worst {
    double error = -1.0, reference = 0.0;
    float x = 0.0f, y = 0.0f, result = 0.0f;
};

void check(const float *x, const float *y, Worst &worst) {
    float results[LANES];
    tk_store(results, tk_pow(tk_load<V>(x), tk_load<V>(y)));
    for (int i = 0; i < LANES; i++) {
        const double reference = std::pow((double)x[i], (double)y[i]);
        const double error = error_in_ulp(results[i], reference);
        if (error > worst.error) worst = {error, reference, x[i], y[i], results[i]};
    }
}

void check_special(Worst &worst) {
    const float inf = INFINITY;
    const float base[] = {0.0f, 0x1p-149f, 0x1p-127f, 0x1p-126f, 0.25f, 0.5f, 0x1.fffffep-1f, 1.0f, 0x1.000002p0f, 1.5f,
                          2.0f, 3.0f, 7.0f, 0x1p23f, 0x1.fffffep23f, 0x1p24f, 0x1p25f, 0x1.fffffep127f, inf, NAN};
    std::vector<float> values;
    for (float one : base) values.push_back(one), values.push_back(-one);
    for (float x : values) {
        for (float y : values) {
            float xs[LANES], ys[LANES];
            for (int i = 0; i < LANES; i++) xs[i] = x, ys[i] = y;
            check(xs, ys, worst);
        }
    }
}

struct Random {
    uint64_t state;
    uint32_t next() {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (uint32_t)(state >> 32);
    }
    double unit() { return next() * 0x1p-32; }
};

// Half of the pairs give results over the whole finite range, a quarter lie near x = 1, a quarter are any bits.
void sample(Random &random, float &x, float &y) {
    const uint32_t kind = random.next() & 3;
    if (kind == 3) {
        const uint32_t a = random.next(), b = random.next();
        std::memcpy(&x, &a, 4), std::memcpy(&y, &b, 4);
        return;
    }
    x = (float)(kind == 2 ? 1.0 + (random.unit() - 0.5) * 0x1p-8 : std::exp2(250.0 * random.unit() - 125.0));
    if (kind == 1) x = (float)(0.5 + random.unit());
    const double log2 = std::log2((double)x);
    y = (float)((300.0 * random.unit() - 150.0) / (log2 == 0.0 ? 1.0 : log2));
}

}  // namespace

int main(int count, char **arguments) {
    const long pairs = count > 1 ? std::atol(arguments[1]) : 1000000;
    const int threads = count > 2 ? std::atoi(arguments[2]) : 1;
    std::vector<Worst> found(threads + 1);
    check_special(found[threads]);
    std::vector<std::thread> running;
    for (int id = 0; id < threads; id++) {
        running.emplace_back([&, id] {
            Random random{0x9e3779b97f4a7c15u * (id + 1)};
            for (long done = 0; done < pairs / threads; done += LANES) {
                float x[LANES], y[LANES];
                for (int i = 0; i < LANES; i++) sample(random, x[i], y[i]);
                check(x, y, found[id]);
            }
        });
    }
    for (std::thread &thread : running) thread.join();
    Worst worst;
    for (const Worst &one : found)
        if (one.error > worst.error) worst = one;
    std::printf("%.4f %a %a %a %a\n", worst.error, worst.x, worst.y, worst.result, worst.reference);
    return 0;
}
