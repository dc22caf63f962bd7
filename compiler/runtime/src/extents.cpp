#include "extents.h"

#include <algorithm>
#include <cstring>

namespace tk {
namespace {

int64_t floor_of(int64_t value, int64_t divisor) {
  return value / divisor - (value % divisor != 0 && value < 0 ? 1 : 0);
}

int64_t sample_alignment(const tk_plan &plan) {
  return plan.device == nullptr || plan.device->sample_alignment == 0 ? 1 : plan.device->sample_alignment;
}

}  // namespace

int64_t extent_of(const tk_plan_dim &dim, const std::vector<int64_t> &symbols) {
  if (dim.factors == nullptr) return dim.extent;
  int64_t sum = dim.offset;
  for (size_t i = 0; i < symbols.size(); ++i) sum += dim.factors[i] * symbols[i];
  return floor_of(sum, dim.divisor);
}

int32_t first_counted(const tk_plan &plan) { return plan.n_symbols - plan.n_counts; }

bool is_counted(const tk_plan &plan, const tk_plan_dim &dim) {
  for (int32_t i = first_counted(plan); dim.factors != nullptr && i < plan.n_symbols; ++i)
    if (dim.factors[i] != 0) return true;
  return false;
}

int64_t room_of(const tk_plan &plan, const tk_plan_dim &dim, const std::vector<int64_t> &symbols) {
  if (!is_counted(plan, dim)) return extent_of(dim, symbols);
  std::vector<int64_t> most = symbols;
  for (size_t i = static_cast<size_t>(first_counted(plan)); i < most.size(); ++i)
    most[i] = dim.factors[i] > 0 ? plan.symbols[i].max : plan.symbols[i].min;
  return extent_of(dim, most);
}

int32_t symbol_of(const tk_plan_dim &dim, int32_t n_symbols) {
  if (dim.factors == nullptr || dim.offset != 0 || dim.divisor != 1) return -1;
  int32_t found = -1;
  for (int32_t i = 0; i < n_symbols; ++i) {
    if (dim.factors[i] == 0) continue;
    if (found >= 0 || dim.factors[i] != 1) return -1;
    found = i;
  }
  return found;
}

bool range_of(const tk_plan &plan, const tk_plan_dim &dim, int64_t *least, int64_t *most) {
  *least = *most = dim.extent;
  if (dim.factors == nullptr) return true;
  if (dim.divisor < 1) return false;
  constexpr int64_t kLargest = int64_t{1} << 61;  // all sums of such a dimension can be computed, in whatever order
  int64_t low = dim.offset, high = dim.offset, sum = 0;
  if (dim.offset < -kLargest || dim.offset > kLargest) return false;
  for (int32_t i = 0; i < plan.n_symbols; ++i) {
    const int64_t factor = dim.factors[i];
    int64_t a, b;
    const tk_symbol &symbol = plan.symbols[i];
    if (__builtin_mul_overflow(factor, symbol.min, &a) || __builtin_mul_overflow(factor, symbol.max, &b)) return false;
    if (std::min(a, b) < -kLargest || std::max(a, b) > kLargest) return false;
    sum += std::max(std::max(-a, a), std::max(-b, b)) / plan.n_symbols;
    if (sum > kLargest / plan.n_symbols) return false;
    low += std::min(a, b);
    high += std::max(a, b);
  }
  *least = floor_of(low, dim.divisor);
  *most = floor_of(high, dim.divisor);
  return true;
}

Box::Box(const tk_plan &plan, const tk_plan_tensor &tensor, const tk_plan_tensor &memory, bool apart)
    : tensor_(tensor), memory_(memory), apart_(apart), alignment_(sample_alignment(plan)) {
  const size_t rank = static_cast<size_t>(tensor.rank);
  extents_.resize(rank);
  steps_.resize(rank);
  for (size_t i = 0; i < rank; ++i)
    if (tensor.dims[i].factors != nullptr && plan.n_symbols > 0)
      open_ = open_ || tensor.dims[i].extent >= 0 || alignment_ > 1;
  for (size_t i = 0; i < rank; ++i) counted_ = counted_ || tk::is_counted(plan, tensor.dims[i]);
}

void Box::set(const std::vector<int64_t> &symbols) {
  if (!open_) return;
  const size_t rank = extents_.size();
  int64_t step = tensor_.dtype_bits * int64_t{tensor_.dtype_lanes} / 8;
  whole_ = true;
  run_ = step;
  outer_ = 0;
  for (size_t i = rank; i-- > 0;) {
    const tk_plan_dim &dim = tensor_.dims[i];
    extents_[i] = extent_of(dim, symbols);
    if (dim.extent < 0 && step % alignment_ != 0) {
      step += alignment_ - step % alignment_;
      if (whole_ && extents_[i] > 1) {
        whole_ = false;
        outer_ = i + 1;
      }
    }
    steps_[i] = step;
    const int64_t bound = dim.extent < 0 ? extents_[i] : memory_.dims[i].extent;
    step *= bound;
    if (whole_) run_ *= extents_[i];
    if (whole_ && extents_[i] != bound) outer_ = i;
    whole_ = whole_ && extents_[i] == bound;
  }
  bytes_ = step;
  first_ = 0;
  for (const int64_t extent : extents_)
    if (extent == 0) run_ = 0;
  while (first_ < outer_ && extents_[first_] == 1) ++first_;
  if (first_ == outer_) first_ = outer_ = 0;
}

int64_t Box::callers_bytes() const {
  int64_t bytes = tensor_.dtype_bits * int64_t{tensor_.dtype_lanes} / 8;
  for (const int64_t extent : extents_) bytes *= extent;
  return bytes;
}

void Box::spread(unsigned char *ours, const unsigned char *callers) const {
  for_each_run([=](int64_t to, int64_t from, int64_t bytes) {
    std::memcpy(ours + to, callers + from, static_cast<size_t>(bytes));
  });
}

void Box::gather(unsigned char *callers, const unsigned char *ours) const {
  for_each_run([=](int64_t from, int64_t to, int64_t bytes) {
    std::memcpy(callers + to, ours + from, static_cast<size_t>(bytes));
  });
}

}  // namespace tk
