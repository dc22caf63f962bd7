// Error reporting inside the runtime: a status code and one message per thread.
#ifndef TK_ERROR_H
#define TK_ERROR_H

#include "tk_model.h"

namespace tk {

// Notes the message (printf format, cut at 1023 bytes) for tk_last_error and returns `status`.
__attribute__((format(printf, 2, 3))) tk_status fail(tk_status status, const char *format, ...);

const char *last_error();
const char *status_text(tk_status status);

}  // namespace tk

#endif
