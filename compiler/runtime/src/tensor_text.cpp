#include "tensor_text.h"

#include <cctype>
#include <cstdarg>
#include <cstdio>
#include <cstring>

namespace tk {

void Text::add(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  const int n = std::vsnprintf(text_ + used_, sizeof text_ - used_, format, arguments);
  va_end(arguments);
  if (n > 0) used_ += static_cast<size_t>(n);
  if (used_ >= sizeof text_) used_ = sizeof text_ - 1;
}

namespace {

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

void add_symbol(Text *text, const tk_model &model, int32_t symbol) {
  const char *name = model.symbols[static_cast<size_t>(symbol)];
  if (name[0] != 0)
    text->add("%.60s", name);
  else
    text->add("d%d", symbol);
}

bool is_plain(const char *text) {
  for (; *text != 0; ++text)
    if (!std::isalnum(static_cast<unsigned char>(*text)) && std::strchr("_-.:/", *text) == nullptr) return false;
  return true;
}

}  // namespace

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

void add_dim(Text *text, const tk_model &model, const tk_dim &dim, int32_t i, int64_t extent) {
  const size_t symbol = static_cast<size_t>(dim.symbol);
  text->add("dimension %d", i);
  if (dim.symbol >= 0 && symbol < model.symbols.size() && model.symbols[symbol][0] != 0)
    text->add(" ('%.60s')", model.symbols[symbol]);
  text->add(" is %lld", static_cast<long long>(extent));
}

void add_expression(Text *text, const tk_model &model, const tk_plan_dim &dim, const std::vector<int64_t> &symbols) {
  const char *before = "";
  if (dim.divisor != 1) text->add("(");
  for (int32_t i = 0; dim.factors != nullptr && i < model.plan->n_symbols; ++i) {
    const int64_t factor = dim.factors[i];
    if (factor == 0) continue;
    text->add("%s", factor < 0 ? (before[0] != 0 ? " - " : "-") : before);
    if (factor != 1 && factor != -1) text->add("%lld*", static_cast<long long>(factor < 0 ? -factor : factor));
    add_symbol(text, model, i);
    before = " + ";
  }
  const long long offset = dim.offset;
  if (offset != 0) text->add("%s%lld", offset < 0 ? " - " : before, offset < 0 ? -offset : offset);
  if (dim.divisor != 1) text->add(")/%lld", static_cast<long long>(dim.divisor));
  before = ", where ";
  for (int32_t i = 0; dim.factors != nullptr && i < model.plan->n_symbols; ++i) {
    if (dim.factors[i] == 0) continue;
    text->add("%s", before);
    add_symbol(text, model, i);
    text->add(" is %lld", static_cast<long long>(symbols[static_cast<size_t>(i)]));
    before = ", ";
  }
}

void add_option(Text *text, const tk_model &model, const Tensor &want, int32_t i, int64_t extent) {
  const auto is_range = [&](size_t n) {
    const int32_t symbol = want.dims[n].symbol;
    return symbol >= 0 && symbol < model.plan->n_symbols && want.plan->dims[n].extent >= 0;
  };
  const auto add_range = [&](const tk_dim &dim, bool is_asked) {
    text->add("%lld..%lld", static_cast<long long>(is_asked && extent < dim.min ? extent : dim.min),
              static_cast<long long>(is_asked && extent > dim.max ? extent : dim.max));
  };
  const size_t asked = static_cast<size_t>(i), rank = want.dims.size();
  if (!is_range(asked) || extent < 1) return;
  bool has_batch = false;  // which a shape would fix
  for (size_t n = 0; n < rank; ++n) has_batch = has_batch || want.plan->dims[n].extent < 0;
  const char *const name = has_batch ? model.symbols[static_cast<size_t>(want.dims[asked].symbol)] : want.name;
  if (name[0] == 0) return;
  const char *const quote = is_plain(name) ? "" : "'";
  text->add("; compile the model with %s %s%.60s=", has_batch ? "--dim" : "--shape", quote, name);
  for (size_t n = has_batch ? asked : 0; n < (has_batch ? asked + 1 : rank); ++n) {
    text->add("%s", n == 0 || has_batch ? "" : ",");
    if (is_range(n))
      add_range(want.dims[n], n == asked);
    else
      text->add("%lld", static_cast<long long>(want.dims[n].max));
  }
  text->add("%s", quote);
}

}  // namespace tk
