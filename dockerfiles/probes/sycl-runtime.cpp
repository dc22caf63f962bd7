// c = a * b + c with a kernel that the SYCL runtime compiles from text.
#define SYCL_DISABLE_FSYCL_SYCLHPP_WARNING 1  // no kernel in this file itself
#include <sycl/sycl.hpp>

#include <cstdio>
#include <string>

namespace syclex = sycl::ext::oneapi::experimental;

static const char *kernel_text = R"(
#include <sycl/sycl.hpp>
namespace syclex = sycl::ext::oneapi::experimental;
extern "C" SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((syclex::nd_range_kernel<1>))
void multiply_add(const float *a, const float *b, float *c) {
    size_t i = sycl::ext::oneapi::this_work_item::get_nd_item<1>().get_global_linear_id();
    c[i] = a[i] * b[i] + c[i];
}
)";

int main() {
    constexpr size_t n = 1024;
    sycl::queue queue;
    std::printf("device: %s\n", queue.get_device().get_info<sycl::info::device::name>().c_str());
    auto source = syclex::create_kernel_bundle_from_source(queue.get_context(), syclex::source_language::sycl,
                                                           std::string(kernel_text));
    auto bundle = syclex::build(source);
    sycl::kernel kernel = bundle.ext_oneapi_get_kernel("multiply_add");
    float *a = sycl::malloc_shared<float>(n, queue), *b = sycl::malloc_shared<float>(n, queue);
    float *c = sycl::malloc_shared<float>(n, queue);
    for (size_t i = 0; i < n; ++i) a[i] = i % 7, b[i] = i % 11, c[i] = i % 13;
    queue.submit([&](sycl::handler &handler) {
        handler.set_args(a, b, c);
        handler.parallel_for(sycl::nd_range<1>(n, 64), kernel);
    }).wait();
    for (size_t i = 0; i < n; ++i)
        if (c[i] != float(i % 7) * (i % 11) + i % 13) return std::puts("the kernel computed wrong numbers"), 1;
    std::puts("kernel: right");
}
