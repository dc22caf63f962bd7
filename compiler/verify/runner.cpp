// Runs a model library once, as a program of its own: for a processor that this machine only emulates.
//
//   runner LIBRARY                          one line for each input and output: `in|out CODE BITS DIM...`
//   runner LIBRARY SHAPES                   one line for each output that inputs of these shapes have: `out DIM...`
//   runner LIBRARY SHAPES THREADS IN OUT    inputs from the file IN; the file OUT has outputs before and after, and
//                                           lines say the shapes that they have then
//
// A dimension that may have several extents is SYMBOL:MIN:MAX:DIVISOR. SHAPES: `2,3;;4;` for a matrix, a scalar and a
// vector. Tensors lie in the files one after the other, as the lines are in order. What goes wrong is one line on standard
// error that begins with the status of tk_model.h.
#include "tk_model.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

const tk_model_api *api = nullptr;

[[noreturn]] void fail(int status, const std::string &message) {
  std::fprintf(stderr, "%d %s\n", status, message.c_str());
  std::exit(1);
}

void check(tk_status status) {
  if (status != TK_OK) fail(status, api->last_error());
}

struct Tensor {
  tk_tensor_info info;
  std::vector<int64_t> shape;
  void *data;

  size_t bytes() const {
    size_t elements = 1;
    for (const int64_t extent : shape) elements *= static_cast<size_t>(extent);
    return (elements * info.dtype.bits * info.dtype.lanes + 7) / 8;
  }
};

std::vector<Tensor> describe(tk_model *model, int32_t count, decltype(tk_model_api::model_input) describe_one) {
  std::vector<Tensor> found(static_cast<size_t>(count));
  for (int32_t i = 0; i < count; ++i) {
    Tensor &one = found[static_cast<size_t>(i)];
    check(describe_one(model, i, &one.info));
    one.shape.resize(static_cast<size_t>(one.info.rank));
  }
  return found;
}

void allocate(std::vector<Tensor> *tensors) {
  for (Tensor &one : *tensors) {
    one.data = std::aligned_alloc(64, (one.bytes() + 64) / 64 * 64);
    if (one.data == nullptr) fail(TK_ERR_MEMORY, "not enough memory for a tensor");
  }
}

void read_shapes(const char *text, std::vector<Tensor> *inputs) {
  for (Tensor &one : *inputs) {
    for (int64_t &extent : one.shape) {
      char *end;
      extent = std::strtoll(text, &end, 10);
      text = *end == ',' ? end + 1 : end;
    }
    if (*text++ != ';') fail(TK_ERR_INPUT, "an input with another number of dimensions than the library's");
  }
}

void print(const char *kind, const std::vector<Tensor> &tensors) {
  for (const Tensor &one : tensors) {
    std::printf("%s %d %d", kind, one.info.dtype.code, one.info.dtype.bits);
    for (int32_t d = 0; d < one.info.rank; ++d) {
      const tk_dim &dim = one.info.dims[d];
      if (dim.symbol >= 0)
        std::printf(" %d:%lld:%lld:%lld", dim.symbol, static_cast<long long>(dim.min), static_cast<long long>(dim.max),
                    static_cast<long long>(dim.divisor));
      else
        std::printf(" %lld", static_cast<long long>(dim.min));
    }
    std::printf("\n");
  }
}

void print_shapes(const std::vector<Tensor> &outputs) {
  for (const Tensor &one : outputs) {
    std::printf("out");
    for (const int64_t extent : one.shape) std::printf(" %lld", static_cast<long long>(extent));
    std::printf("\n");
  }
}

void move(const char *path, const char *mode, const std::vector<Tensor> &tensors, bool writes) {
  FILE *file = std::fopen(path, mode);
  if (file == nullptr) fail(TK_ERR_ARGUMENT, std::string("cannot open ") + path);
  for (const Tensor &one : tensors) {
    const size_t bytes = one.bytes();
    const size_t moved = writes ? std::fwrite(one.data, 1, bytes, file) : std::fread(one.data, 1, bytes, file);
    if (moved != bytes) fail(TK_ERR_ARGUMENT, std::string("this file has another size: ") + path);
  }
  if (std::fclose(file) != 0) fail(TK_ERR_ARGUMENT, std::string("cannot write ") + path);
}

std::vector<DLTensor> as_dlpack(std::vector<Tensor> *tensors) {
  std::vector<DLTensor> made;
  for (Tensor &one : *tensors)
    made.push_back({one.data, {kDLCPU, 0}, one.info.rank, one.info.dtype, one.shape.data(), nullptr, 0});
  return made;
}

}  // namespace

int main(int argc, char **argv) {
  if (argc != 2 && argc != 3 && argc != 6) fail(TK_ERR_ARGUMENT, "usage: runner LIBRARY [SHAPES [THREADS IN OUT]]");
  void *library = dlopen(argv[1], RTLD_NOW);
  if (library == nullptr) fail(TK_ERR_LIBRARY, dlerror());
  api = static_cast<const tk_model_api *>(dlsym(library, "tk_model_api_v1"));
  if (api == nullptr) fail(TK_ERR_LIBRARY, "this is no model library");
  if (api->struct_size < sizeof *api) fail(TK_ERR_LIBRARY, "this library is older than the program that runs it");
  tk_model *model = nullptr;
  check(api->model_open(&model));
  std::vector<Tensor> inputs = describe(model, api->model_input_count(model), api->model_input);
  std::vector<Tensor> outputs = describe(model, api->model_output_count(model), api->model_output);
  if (argc == 2) {
    print("in", inputs);
    print("out", outputs);
    return 0;
  }
  read_shapes(argv[2], &inputs);
  const int32_t n_inputs = static_cast<int32_t>(inputs.size()), n_outputs = static_cast<int32_t>(outputs.size());
  std::vector<DLTensor> in = as_dlpack(&inputs), out = as_dlpack(&outputs);
  check(api->model_shapes(model, in.data(), n_inputs, out.data(), n_outputs));
  if (argc == 3) {
    print_shapes(outputs);
    return 0;
  }
  tk_context_options options = {};
  options.struct_size = sizeof options;
  options.threads = std::atoi(argv[3]);
  tk_context *context = nullptr;
  check(api->context_open(model, &options, &context));
  allocate(&inputs);
  allocate(&outputs);
  move(argv[4], "rb", inputs, false);
  move(argv[5], "rb", outputs, false);
  in = as_dlpack(&inputs);
  out = as_dlpack(&outputs);
  check(api->context_run(context, in.data(), n_inputs, out.data(), n_outputs));
  move(argv[5], "wb", outputs, true);
  print_shapes(outputs);  // a run may find out how much there is
  api->context_close(context);
  api->model_close(model);
  return 0;
}
