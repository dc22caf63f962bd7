// Runs the model library that it is linked with: raw inputs on stdin, one after the other, raw outputs on stdout.
//   c++ -std=c++17 run_linked_model.cpp -I DIRECTORY_OF_TK_MODEL_H MODEL.so -o run && ./run < x.raw > y.raw
#include <cstdio>
#include <memory>
#include <vector>

#include "tk_model.h"

namespace {

struct Tensor {
  std::vector<int64_t> shape;
  std::vector<char> bytes;
  DLDataType dtype;

  // With every open dimension at its maximum.
  explicit Tensor(const tk_tensor_info &info) : bytes(static_cast<size_t>(info.bytes)), dtype(info.dtype) {
    for (int i = 0; i < info.rank; ++i) shape.push_back(info.dims[i].max);
  }
  DLTensor view() {
    return {bytes.data(), {kDLCPU, 0}, static_cast<int32_t>(shape.size()), dtype, shape.data(), nullptr, 0};
  }
};

template <class Describe> std::vector<Tensor> tensors(const tk_model *model, int32_t count, Describe describe) {
  std::vector<Tensor> found;
  for (int32_t i = 0; i < count; ++i) {
    tk_tensor_info info;
    if (describe(model, i, &info) == TK_OK) found.emplace_back(info);
  }
  return found;
}

std::vector<DLTensor> views(std::vector<Tensor> &tensors) {
  std::vector<DLTensor> found;
  for (Tensor &one : tensors) found.push_back(one.view());
  return found;
}

int fail() {
  std::fprintf(stderr, "%s\n", tk_last_error_v1());
  return 1;
}

}  // namespace

int main() {
  tk_model *opened = nullptr;
  if (tk_model_open_v1(&opened) != TK_OK) return fail();
  const std::unique_ptr<tk_model, decltype(&tk_model_close_v1)> model(opened, tk_model_close_v1);
  tk_context *made = nullptr;
  if (tk_context_open_v1(model.get(), nullptr, &made) != TK_OK) return fail();
  const std::unique_ptr<tk_context, decltype(&tk_context_close_v1)> context(made, tk_context_close_v1);

  auto inputs = tensors(model.get(), tk_model_input_count_v1(model.get()), tk_model_input_v1);
  auto outputs = tensors(model.get(), tk_model_output_count_v1(model.get()), tk_model_output_v1);
  for (Tensor &one : inputs)
    if (std::fread(one.bytes.data(), 1, one.bytes.size(), stdin) != one.bytes.size()) {
      std::fputs("stdin is too short\n", stderr);
      return 1;
    }
  auto given = views(inputs), results = views(outputs);
  if (tk_context_run_v1(context.get(), given.data(), static_cast<int32_t>(given.size()), results.data(),
                        static_cast<int32_t>(results.size())) != TK_OK)
    return fail();
  for (const Tensor &one : outputs) std::fwrite(one.bytes.data(), 1, one.bytes.size(), stdout);
  return 0;
}
