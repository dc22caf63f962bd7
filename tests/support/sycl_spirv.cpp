// SOURCE OUTPUT: what the SYCL runtime's compiler makes of a source for devices: SPIR-V, in a SYCLBIN. Nothing is
// built for a device; one is named only because the runtime asks for it.
#include <fstream>
#include <iostream>
#include <sstream>
#include <sycl/sycl.hpp>

namespace experimental = sycl::ext::oneapi::experimental;

int main(int count, char **words) try {
  if (count != 3) return 2;
  std::ostringstream text;
  text << std::ifstream(words[1]).rdbuf();
  const sycl::device device = sycl::device::get_devices().at(0);
  auto source = experimental::create_kernel_bundle_from_source(sycl::context(device),
                                                               experimental::source_language::sycl, text.str());
  const std::vector<std::string> options = {"-O3", "-ffp-contract=fast", "-fno-strict-aliasing", "-fwrapv"};
  const auto object = experimental::compile(source, std::vector<sycl::device>{device},
                                            experimental::properties{experimental::build_options{options}});
  const std::vector<char> content = object.ext_oneapi_get_content();
  std::ofstream(words[2], std::ios::binary).write(content.data(), content.size());
  return 0;
} catch (const std::exception &error) {
  std::cerr << error.what() << "\n";
  return 1;
}
