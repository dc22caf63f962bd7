#include "binding.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "error.h"

namespace tk {
namespace {

constexpr int64_t kUnbound = -1;
constexpr int32_t kCpu = 1, kCudaHost = 3, kRocmHost = 11;  // devices of DLPack that this processor can address

// Text of bounded length, for messages.
class Text {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    const int n = std::vsnprintf(text_ + used_, sizeof text_ - used_, format, arguments);
    va_end(arguments);
    if (n > 0) used_ += static_cast<size_t>(n);
    if (used_ >= sizeof text_) used_ = sizeof text_ - 1;
  }
  const char *get() const { return text_; }

 private:
  char text_[256] = "";
  size_t used_ = 0;
};

void add_dtype(Text *text, DLDataType dtype) {
  static const char *const kKinds[] = {"int", "uint", "float", "handle", "bfloat", "complex", "bool"};
  // DLPack's codes 10 to 17, as numbers: its own header may be one that does not have them yet.
  static const char *const kSmall[] = {"float8_e4m3fn",   "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",
                                       "float8_e8m0fnu", nullptr,           nullptr,       "float4_e2m1fn"};
  const char *const small = dtype.code >= 10 && dtype.code <= 17 ? kSmall[dtype.code - 10] : nullptr;
  if (small != nullptr)
    text->add("%s", small);
  else if (dtype.code >= sizeof kKinds / sizeof kKinds[0])
    text->add("dtype(%d:%d)", dtype.code, dtype.bits);
  else if (dtype.code == kDLBool && dtype.bits == 8)
    text->add("bool");
  else
    text->add("%s%d", kKinds[dtype.code], dtype.bits);
  if (dtype.lanes != 1) text->add("x%d", dtype.lanes);
}

Text type_of(const Tensor &want) {
  Text text;
  add_dtype(&text, want.dtype);
  text.add("[");
  for (size_t i = 0; i < want.dims.size(); ++i) {
    const tk_dim &dim = want.dims[i];
    const char *comma = i == 0 ? "" : ",";
    if (dim.symbol < 0)
      text.add("%s%lld", comma, static_cast<long long>(dim.min));
    else
      text.add("%s%lld..%lld", comma, static_cast<long long>(dim.min), static_cast<long long>(dim.max));
  }
  text.add("]");
  return text;
}

Text type_of(const DLTensor &got) {
  Text text;
  add_dtype(&text, got.dtype);
  text.add("[");
  for (int32_t i = 0; i < got.ndim; ++i)
    text.add("%s%lld", i == 0 ? "" : ",", static_cast<long long>(got.shape[i]));
  text.add("]");
  return text;
}

tk_status status_of(const Tensor &want) { return want.role[0] == 'i' ? TK_ERR_INPUT : TK_ERR_OUTPUT; }

tk_status misfit(const Tensor &want, const DLTensor &got, const char *why) {
  return fail(status_of(want), "%s '%s': expected %s, got %s: %s", want.role, want.name, type_of(want).get(),
              type_of(got).get(), why);
}

bool same_dtype(DLDataType a, DLDataType b) {
  return a.code == b.code && a.bits == b.bits && a.lanes == b.lanes;
}

// Everything but dimensions.
tk_status check_kind(const tk_model &model, const Tensor &want, const DLTensor &got, bool *on_device) {
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
  if (got.ndim < 0 || (got.ndim > 0 && got.shape == nullptr))
    return fail(status_of(want), "%s '%s' has %d dimensions and no shape", want.role, want.name, got.ndim);
  return TK_OK;
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

tk_status check_dim(const Tensor &want, const DLTensor &got, int32_t i, std::vector<int64_t> *symbols) {
  const tk_dim &dim = want.dims[static_cast<size_t>(i)];
  const int64_t extent = got.shape[i];
  Text why;
  if (extent < dim.min || extent > dim.max || extent % dim.divisor != 0) {
    why.add("dimension %d is %lld, expected %lld", i, static_cast<long long>(extent),
            static_cast<long long>(dim.min));
    if (dim.max != dim.min) why.add(" to %lld", static_cast<long long>(dim.max));
    if (dim.divisor != 1) why.add(" in multiples of %lld", static_cast<long long>(dim.divisor));
    return misfit(want, got, why.get());
  }
  if (dim.symbol < 0) return TK_OK;
  int64_t *value = &(*symbols)[static_cast<size_t>(dim.symbol)];
  if (*value == kUnbound) *value = extent;
  if (*value == extent) return TK_OK;
  why.add("dimension %d is %lld, and an equal dimension before is %lld", i, static_cast<long long>(extent),
          static_cast<long long>(*value));
  return misfit(want, got, why.get());
}

tk_status bind_input(const tk_model &model, const Tensor &want, const DLTensor &got, std::vector<int64_t> *symbols, Buffer *buffer) {
  if (const tk_status status = check_kind(model, want, got, &buffer->on_device)) return status;
  if (const tk_status status = check_dtype(want, got)) return status;
  const int32_t rank = static_cast<int32_t>(want.dims.size());
  if (got.ndim != rank) {
    Text why;
    why.add("%d dimensions, expected %d", got.ndim, rank);
    return misfit(want, got, why.get());
  }
  int64_t elements = 1;
  for (int32_t i = 0; i < rank; ++i) {
    if (const tk_status status = check_dim(want, got, i, symbols)) return status;
    elements *= got.shape[i];
  }
  return check_memory(want, got, elements, buffer);
}

tk_status bind_output(const tk_model &model, const Tensor &want, DLTensor *got, const std::vector<int64_t> &symbols, Mapping *owned,
                      Buffer *buffer) {
  if (const tk_status status = check_kind(model, want, *got, &buffer->on_device)) return status;
  const int32_t rank = static_cast<int32_t>(want.dims.size());
  if (got->ndim < rank)
    return fail(TK_ERR_OUTPUT, "output '%s' has %d dimensions, and its shape has room for %d", want.name, rank,
                got->ndim);
  int64_t elements = 1;
  got->ndim = rank;
  for (int32_t i = 0; i < rank; ++i) {
    const tk_dim &dim = want.dims[static_cast<size_t>(i)];
    got->shape[i] = dim.symbol < 0 ? dim.min : symbols[static_cast<size_t>(dim.symbol)];
    elements *= got->shape[i];
  }
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

tk_status bind_inputs(const tk_model &model, const DLTensor *tensors, std::vector<int64_t> *symbols,
                      std::vector<Buffer> *buffers) {
  symbols->assign(static_cast<size_t>(model.plan->n_symbols), kUnbound);
  buffers->assign(model.inputs.size(), Buffer());
  for (size_t i = 0; i < model.inputs.size(); ++i)
    if (const tk_status status = bind_input(model, model.inputs[i], tensors[i], symbols, &(*buffers)[i])) return status;
  for (const int64_t value : *symbols)
    if (value == kUnbound) return fail(TK_ERR_LIBRARY, "a symbolic dimension occurs in no input");
  return TK_OK;
}

tk_status bind_outputs(const tk_model &model, DLTensor *tensors, const std::vector<int64_t> &symbols,
                       std::vector<Mapping> *owned, std::vector<Buffer> *buffers) {
  buffers->assign(model.outputs.size(), Buffer());
  for (size_t i = 0; i < model.outputs.size(); ++i) {
    Buffer *buffer = &(*buffers)[i];
    DLTensor check = {nullptr, {kDLCPU, 0}, 0, {}, nullptr, nullptr, 0};
    DLTensor *tensor = i < static_cast<size_t>(model.n_results) ? &tensors[i] : &check;
    if (const tk_status status = bind_output(model, model.outputs[i], tensor, symbols, &(*owned)[i], buffer))
      return status;
    for (size_t j = 0; j < i; ++j)
      if (buffer->overlaps((*buffers)[j]))
        return fail(TK_ERR_OUTPUT, "outputs '%s' and '%s' share memory", model.outputs[j].name,
                    model.outputs[i].name);
  }
  return TK_OK;
}

tk_status read_checks(const tk_model &model, const std::vector<Buffer> &outputs) {
  for (size_t i = static_cast<size_t>(model.n_results); i < outputs.size(); ++i) {
    int32_t agrees;
    std::memcpy(&agrees, outputs[i].data, sizeof agrees);
    if (agrees == 0) return fail(TK_ERR_INPUT, "%s", model.outputs[i].name);
  }
  return TK_OK;
}

}  // namespace tk
