// What messages say of tensors: types, dimensions, what they follow from, and which option would allow them.
#ifndef TK_TENSOR_TEXT_H
#define TK_TENSOR_TEXT_H

#include <vector>

#include "model.h"

namespace tk {

// Text of bounded length, for messages.
class Text {
 public:
  __attribute__((format(printf, 2, 3))) void add(const char *format, ...);
  const char *get() const { return text_; }

 private:
  char text_[512] = "";
  size_t used_ = 0;
};

// "float32[1..4096,8]".
Text type_of(const Tensor &want);
Text type_of(const DLTensor &got);

// "dimension 1 ('sequence') is 600".
void add_dim(Text *text, const tk_model &model, const tk_dim &dim, int32_t i, int64_t extent);

// "(2*rows + 1)/2, where rows is 3".
void add_expression(Text *text, const tk_model &model, const tk_plan_dim &dim, const std::vector<int64_t> &symbols);

// The option of the compiler with which dimension `i` of an input may have this extent; nothing where none would help.
void add_option(Text *text, const tk_model &model, const Tensor &want, int32_t i, int64_t extent);

}  // namespace tk

#endif
