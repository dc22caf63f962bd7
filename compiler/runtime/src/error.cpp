#include "error.h"

#include <cstdarg>
#include <cstdio>

namespace tk {
namespace {

// Plain bytes: a type with a destructor would keep the library loaded until every thread has ended.
thread_local char message[1024];

}  // namespace

tk_status fail(tk_status status, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(message, sizeof message, format, arguments);
  va_end(arguments);
  return status;
}

const char *last_error() { return message; }

const char *status_text(tk_status status) {
  switch (status) {
    case TK_OK:
      return "Done.";
    case TK_ERR_ARGUMENT:
      return "The call is wrong: a null pointer, an index or a value out of range.";
    case TK_ERR_INPUT:
      return "An input tensor does not fit the model.";
    case TK_ERR_OUTPUT:
      return "An output tensor does not fit the model.";
    case TK_ERR_HOST:
      return "This machine lacks something the library was built for.";
    case TK_ERR_MEMORY:
      return "There is not enough memory.";
    case TK_ERR_DEVICE:
      return "A tensor lies on a device that this library cannot reach.";
    case TK_ERR_BUSY:
      return "The context is already running in another thread.";
    case TK_ERR_LIBRARY:
      return "The library contradicts itself: damaged, or its parts were built apart.";
    default:
      return "Unknown status.";
  }
}

}  // namespace tk
