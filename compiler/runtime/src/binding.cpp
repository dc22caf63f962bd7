#include "binding.h"

#include <cstring>

#include "error.h"
#include "extents.h"
#include "tensor_text.h"

namespace tk {
namespace {

constexpr int64_t kUnbound = -1;
constexpr int32_t kCpu = 1, kCudaHost = 3, kRocmHost = 11;  // devices of DLPack that this processor can address

int64_t elements_of(const DLTensor &tensor) {
  int64_t elements = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) elements *= tensor.shape[i];
  return elements;
}

tk_status status_of(const Tensor &want) { return want.role[0] == 'i' ? TK_ERR_INPUT : TK_ERR_OUTPUT; }

tk_status misfit(const Tensor &want, const DLTensor &got, const char *why) {
  return fail(status_of(want), "%s '%s': expected %s, got %s: %s", want.role, want.name, type_of(want).get(),
              type_of(got).get(), why);
}

bool same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// Where it lies.
tk_status check_place(const tk_model &model, const Tensor &want, const DLTensor &got, bool *on_device) {
  const int32_t device = static_cast<int32_t>(got.device.device_type);
  const bool on_host = device == kCpu || device == kCudaHost || device == kRocmHost;
  if (!on_host && model.device == nullptr)
    return fail(TK_ERR_DEVICE, "%s '%s' lies on device type %d; this library runs on the CPU (device type 1)",
                want.role, want.name, device);
  if (!on_host) {
    const DLDevice own = model.device->dlpack();
    if (device != static_cast<int32_t>(own.device_type) || got.device.device_id != own.device_id)
      return fail(TK_ERR_DEVICE, "%s '%s' lies on device type %d, number %d; this library runs on %s (type %d, number %d)",
                  want.role, want.name, device, got.device.device_id, model.device->describe(),
                  static_cast<int>(own.device_type), own.device_id);
  }
  *on_device = !on_host;
  return TK_OK;
}

tk_status check_rank(const Tensor &want, const DLTensor &got) {
  if (got.ndim >= 0 && (got.ndim == 0 || got.shape != nullptr)) return TK_OK;
  return fail(status_of(want), "%s '%s' has %d dimensions and no shape", want.role, want.name, got.ndim);
}

tk_status check_dtype(const Tensor &want, const DLTensor &got) {
  return same_dtype(want.dtype, got.dtype) ? TK_OK : misfit(want, got, "another element type");
}

// Data pointer, alignment and strides of a tensor whose shape is right.
tk_status check_memory(const Tensor &want, const DLTensor &got, int64_t elements, Buffer *buffer) {
  buffer->bytes = want.bytes(elements);
  if (elements == 0) return TK_OK;
  if (got.data == nullptr) return fail(status_of(want), "%s '%s' has no data", want.role, want.name);
  buffer->data = static_cast<unsigned char *>(got.data) + got.byte_offset;
  const int64_t element = want.element_bytes();
  const int64_t align = element > 16 ? 16 : element;
  if (reinterpret_cast<uintptr_t>(buffer->data) % static_cast<uintptr_t>(align) != 0)
    return fail(status_of(want), "%s '%s' is not aligned to its element size of %lld bytes", want.role, want.name,
                static_cast<long long>(element));
  int64_t stride = 1;
  for (int32_t i = got.ndim - 1; got.strides != nullptr && i >= 0; --i) {
    if (got.shape[i] != 1 && got.strides[i] != stride)
      return fail(status_of(want),
                  "%s '%s' is not dense and row-major: the stride of dimension %d is %lld elements, expected %lld",
                  want.role, want.name, i, static_cast<long long>(got.strides[i]), static_cast<long long>(stride));
    stride *= got.shape[i];
  }
  return TK_OK;
}

tk_status check_dim(const tk_model &model, const Tensor &want, const DLTensor &got, int32_t i,
                    std::vector<int64_t> *symbols) {
  const tk_dim &dim = want.dims[static_cast<size_t>(i)];
  const int64_t extent = got.shape[i];
  Text why;
  add_dim(&why, model, dim, i, extent);
  if (extent < dim.min || extent > dim.max || extent % dim.divisor != 0) {
    why.add(", expected %lld", static_cast<long long>(dim.min));
    if (dim.max != dim.min) why.add(" to %lld", static_cast<long long>(dim.max));
    if (dim.divisor != 1) why.add(" in multiples of %lld", static_cast<long long>(dim.divisor));
    if (extent < dim.min || extent > dim.max) add_option(&why, model, want, i, extent);
    return misfit(want, got, why.get());
  }
  if (dim.symbol < 0 || dim.symbol >= model.plan->n_symbols) return TK_OK;
  int64_t *value = &(*symbols)[static_cast<size_t>(dim.symbol)];
  if (*value == kUnbound) *value = extent;
  if (*value == extent) return TK_OK;
  why.add(", and an equal dimension before is %lld", static_cast<long long>(*value));
  return misfit(want, got, why.get());
}

// A dimension that follows from others, as a sum does from its parts.
tk_status check_derived(const tk_model &model, const Tensor &want, const DLTensor &got, int32_t i,
                        const std::vector<int64_t> &symbols) {
  const tk_plan_dim &dim = want.plan->dims[i];
  const int64_t expected = extent_of(dim, symbols);
  if (got.shape[i] == expected) return TK_OK;
  Text why;
  add_dim(&why, model, want.dims[static_cast<size_t>(i)], i, got.shape[i]);
  why.add(", expected %lld, which is ", static_cast<long long>(expected));
  add_expression(&why, model, dim, symbols);
  return misfit(want, got, why.get());
}

// Everything but what follows from other dimensions.
tk_status check_shape(const tk_model &model, const Tensor &want, const DLTensor &got, std::vector<int64_t> *symbols) {
  if (const tk_status status = check_rank(want, got)) return status;
  if (const tk_status status = check_dtype(want, got)) return status;
  const int32_t rank = static_cast<int32_t>(want.dims.size());
  if (got.ndim != rank) {
    Text why;
    why.add("%d dimensions, expected %d", got.ndim, rank);
    return misfit(want, got, why.get());
  }
  for (int32_t i = 0; i < rank; ++i)
    if (const tk_status status = check_dim(model, want, got, i, symbols)) return status;
  return TK_OK;
}

// An output that has no extent for these inputs.
tk_status too_small(const tk_model &model, const Tensor &want, int32_t i, const std::vector<int64_t> &symbols) {
  const tk_plan_dim &dim = want.plan->dims[i];
  Text why;
  add_expression(&why, model, dim, symbols);
  return fail(TK_ERR_INPUT, "the inputs are too small: dimension %d of output '%s' would be %lld, which is %s", i,
              want.name, static_cast<long long>(extent_of(dim, symbols)), why.get());
}

tk_status write_shape(const tk_model &model, const Tensor &want, const std::vector<int64_t> &symbols, DLTensor *got) {
  if (const tk_status status = check_rank(want, *got)) return status;
  const int32_t rank = static_cast<int32_t>(want.dims.size());
  if (got->ndim < rank)
    return fail(TK_ERR_OUTPUT, "output '%s' has %d dimensions, and its shape has room for %d", want.name, rank,
                got->ndim);
  got->ndim = rank;
  for (int32_t i = 0; i < rank; ++i) {
    got->shape[i] = room_of(*model.plan, want.plan->dims[i], symbols);
    if (got->shape[i] < 0) return too_small(model, want, i, symbols);
  }
  return TK_OK;
}

tk_status bind_output(const tk_model &model, const Tensor &want, DLTensor *got, const std::vector<int64_t> &symbols,
                      Mapping *owned, Buffer *buffer) {
  if (const tk_status status = check_place(model, want, *got, &buffer->on_device)) return status;
  if (const tk_status status = write_shape(model, want, symbols, got)) return status;
  const int64_t elements = elements_of(*got);
  if (got->data != nullptr) {
    if (const tk_status status = check_dtype(want, *got)) return status;
    return check_memory(want, *got, elements, buffer);
  }
  buffer->bytes = want.bytes(elements);
  buffer->on_device = false;
  // Of the largest size, so that memory handed out once stays valid; pages never touched cost nothing. Where the
  // system does not promise so much it moves when it grows: it is the caller's until the next run only.
  const int64_t room = want.bytes(want.max_elements);
  const bool fits = owned->data() != nullptr && owned->bytes() >= buffer->bytes;
  if (!fits && !owned->allocate(room) && !owned->allocate(buffer->bytes))
    return fail(TK_ERR_MEMORY, "no memory for output '%s' (%lld bytes)", want.name,
                static_cast<long long>(buffer->bytes));
  buffer->data = owned->data();
  got->data = owned->data();
  got->device = {kDLCPU, 0};
  got->byte_offset = 0;
  got->strides = nullptr;
  got->dtype = want.dtype;
  return TK_OK;
}

}  // namespace

tk_status bind_symbols(const tk_model &model, const DLTensor *tensors, std::vector<int64_t> *symbols) {
  symbols->assign(static_cast<size_t>(model.plan->n_symbols), kUnbound);
  const size_t count = model.inputs.size();
  for (size_t i = 0; i < count; ++i)
    if (const tk_status status = check_shape(model, model.inputs[i], tensors[i], symbols)) return status;
  for (int32_t i = first_counted(*model.plan); i < model.plan->n_symbols; ++i)
    (*symbols)[static_cast<size_t>(i)] = model.plan->symbols[i].max;
  for (const int64_t value : *symbols)
    if (value == kUnbound) return fail(TK_ERR_LIBRARY, "a symbolic dimension occurs in no input");
  for (size_t i = 0; i < count; ++i)
    for (int32_t k = 0; k < tensors[i].ndim; ++k)
      if (const tk_status status = check_derived(model, model.inputs[i], tensors[i], k, *symbols)) return status;
  return TK_OK;
}

tk_status write_shapes(const tk_model &model, const std::vector<int64_t> &symbols,
                       const std::vector<DLTensor *> &tensors) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    if (tensors[i] == nullptr) continue;
    if (const tk_status status = write_shape(model, model.outputs[i], symbols, tensors[i])) return status;
    tensors[i]->dtype = model.outputs[i].dtype;
  }
  return TK_OK;
}

tk_status bind_inputs(const tk_model &model, const DLTensor *tensors, std::vector<int64_t> *symbols,
                      std::vector<Buffer> *buffers) {
  if (const tk_status status = bind_symbols(model, tensors, symbols)) return status;
  buffers->assign(static_cast<size_t>(model.plan->n_inputs), Buffer());
  const size_t count = model.inputs.size();
  for (size_t i = 0; i < count; ++i) {
    const Tensor &want = model.inputs[i];
    Buffer *buffer = &(*buffers)[i];
    if (const tk_status status = check_place(model, want, tensors[i], &buffer->on_device)) return status;
    if (const tk_status status = check_memory(want, tensors[i], elements_of(tensors[i]), buffer)) return status;
  }
  int64_t *sizes = symbols->data() + model.plan->first_size;
  for (size_t i = count; i < buffers->size(); ++i) {
    (*buffers)[i].data = reinterpret_cast<unsigned char *>(sizes++);
    (*buffers)[i].bytes = sizeof *sizes;
  }
  return TK_OK;
}

tk_status bind_outputs(const tk_model &model, const std::vector<DLTensor *> &tensors, const std::vector<int64_t> &symbols,
                       std::vector<Mapping> *owned, std::vector<Buffer> *buffers) {
  buffers->assign(model.outputs.size(), Buffer());
  for (size_t i = 0; i < model.outputs.size(); ++i) {
    Buffer *buffer = &(*buffers)[i];
    DLTensor check = {nullptr, {kDLCPU, 0}, 0, {}, nullptr, nullptr, 0};
    DLTensor *tensor = i < tensors.size() ? tensors[i] : &check;
    if (tensor == nullptr) continue;
    if (const tk_status status = bind_output(model, model.outputs[i], tensor, symbols, &(*owned)[i], buffer))
      return status;
    for (size_t j = 0; j < i; ++j)
      if (buffer->overlaps((*buffers)[j]))
        return fail(TK_ERR_OUTPUT, "outputs '%s' and '%s' share memory", model.outputs[j].name,
                    model.outputs[i].name);
  }
  return TK_OK;
}

// More, or less, than there is a place for.
tk_status miscounted(const tk_model &model, size_t symbol, int64_t count) {
  const tk_symbol &range = model.plan->symbols[symbol];
  const char *const name = model.symbols[symbol];
  if (count < range.min)
    return fail(TK_ERR_INPUT, "the run found %lld of '%.60s', and the model takes %lld at least",
                static_cast<long long>(count), name, static_cast<long long>(range.min));
  return fail(TK_ERR_INPUT, "the run found %lld of '%.60s', and the library has room for %lld; compile the model with "
              "--dim '%.60s=%lld..%lld'", static_cast<long long>(count), name, static_cast<long long>(range.max), name,
              static_cast<long long>(range.min), static_cast<long long>(count));
}

// The dimensions of an output once it is known how much there is of it; strides that the caller gave, too.
void write_counted(const Tensor &want, const std::vector<int64_t> &symbols, DLTensor *got) {
  int64_t stride = 1;
  for (int32_t i = got->ndim - 1; i >= 0; --i) {
    got->shape[i] = extent_of(want.plan->dims[i], symbols);
    if (got->strides != nullptr) got->strides[i] = stride;
    stride *= got->shape[i];
  }
}

tk_status read_counts(const tk_model &model, const std::vector<Buffer> &outputs, std::vector<int64_t> *symbols,
                      const std::vector<DLTensor *> &tensors) {
  const size_t count = static_cast<size_t>(model.plan->n_counts), results = static_cast<size_t>(model.n_results);
  if (count == 0) return TK_OK;
  std::vector<int64_t> found = *symbols;
  const size_t first = static_cast<size_t>(first_counted(*model.plan));
  for (size_t i = 0; i < count; ++i) {
    int64_t *value = &found[first + i];
    std::memcpy(value, outputs[results + i].data, sizeof *value);
    const tk_symbol &range = model.plan->symbols[first + i];
    if (*value < range.min || *value > range.max) return miscounted(model, first + i, *value);
  }
  *symbols = found;
  for (size_t i = 0; i < results; ++i) {
    const Tensor &want = model.outputs[i];
    for (size_t k = 0; k < want.dims.size(); ++k)
      if (want.dims[k].counted != 0 && tensors[i] != nullptr) write_counted(want, *symbols, tensors[i]);
  }
  return TK_OK;
}

tk_status read_checks(const tk_model &model, const std::vector<Buffer> &outputs) {
  for (size_t i = static_cast<size_t>(model.n_results + model.plan->n_counts); i < outputs.size(); ++i) {
    int32_t agrees;
    std::memcpy(&agrees, outputs[i].data, sizeof agrees);
    if (agrees == 0) return fail(TK_ERR_INPUT, "%s", model.outputs[i].name);
  }
  return TK_OK;
}

}  // namespace tk
