// No arguments: the shapes of matrix tiles that the first device has, one a line: rows columns steps, type of factors,
// type of sums (numbers of matrix_type). SOURCE KERNEL GROUPS LANES X W BYTES Y: builds a source, runs one kernel on
// the files X and W, and writes its result; GROUPS of LANES, each as Z,Y,X.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <sstream>
#include <sycl/sycl.hpp>

namespace experimental = sycl::ext::oneapi::experimental;

namespace {

std::string content(const char *path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void shapes(const sycl::device &device) {
  if (!device.has(sycl::aspect::ext_intel_matrix)) return;
  for (const auto &item : device.get_info<experimental::info::device::matrix_combinations>()) {
    const auto rows = item.msize ? item.msize : item.max_msize, columns = item.nsize ? item.nsize : item.max_nsize;
    std::cout << rows << ' ' << columns << ' ' << (item.ksize ? item.ksize : item.max_ksize) << ' ' << (int)item.atype
              << ' ' << (int)item.ctype << '\n';
  }
}

void *device_copy(const std::string &data, sycl::queue &queue) {
  void *at = sycl::malloc_device(data.size(), queue);
  queue.memcpy(at, data.data(), data.size()).wait();
  return at;
}

sycl::range<3> sizes(const char *text) {
  size_t found[3] = {1, 1, 1};
  char *at = const_cast<char *>(text);
  for (size_t &one : found) one = std::strtoul(at, &at, 10), at += *at == ',';
  return {found[0], found[1], found[2]};
}

void run(char **words, sycl::queue &queue) {
  auto source = experimental::create_kernel_bundle_from_source(queue.get_context(), experimental::source_language::sycl,
                                                               content(words[1]));
  auto kernel = experimental::build(source).ext_oneapi_get_kernel(words[2]);
  const sycl::range<3> groups = sizes(words[3]), lanes = sizes(words[4]);
  void *x = device_copy(content(words[5]), queue), *w = device_copy(content(words[6]), queue);
  std::string result(std::strtoul(words[7], nullptr, 10), '\0');
  void *y = device_copy(result, queue);
  queue.submit([&](sycl::handler &handler) {
    handler.set_args(x, w, y);
    handler.parallel_for(sycl::nd_range<3>(groups * lanes, lanes), kernel);
  });
  queue.wait_and_throw();
  queue.memcpy(result.data(), y, result.size()).wait();
  std::ofstream(words[8], std::ios::binary).write(result.data(), (std::streamsize)result.size());
  for (void *at : {x, w, y}) sycl::free(at, queue);
}

}  // namespace

int main(int count, char **words) try {
  sycl::queue queue(sycl::device::get_devices().at(0));
  if (count == 1) shapes(queue.get_device());
  if (count == 9) run(words, queue);
  return count == 1 || count == 9 ? 0 : 2;
} catch (const std::exception &error) {
  std::cerr << error.what() << "\n";
  return 1;
}
