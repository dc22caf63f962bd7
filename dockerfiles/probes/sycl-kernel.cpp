// c = a * b + c on the default device.
#include <sycl/sycl.hpp>

#include <cstdio>

int main() {
    constexpr size_t n = 1024;
    sycl::queue queue;
    std::printf("device: %s\n", queue.get_device().get_info<sycl::info::device::name>().c_str());
    float *a = sycl::malloc_shared<float>(n, queue), *b = sycl::malloc_shared<float>(n, queue);
    float *c = sycl::malloc_shared<float>(n, queue);
    for (size_t i = 0; i < n; ++i) a[i] = i % 7, b[i] = i % 11, c[i] = i % 13;
    queue.parallel_for(sycl::range<1>(n), [=](sycl::id<1> i) { c[i] = a[i] * b[i] + c[i]; }).wait();
    for (size_t i = 0; i < n; ++i)
        if (c[i] != float(i % 7) * (i % 11) + i % 13) return std::puts("the kernel computed wrong numbers"), 1;
    std::puts("kernel: right");
}
