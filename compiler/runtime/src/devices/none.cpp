// For libraries whose kernels are host code.
#include "device.h"
#include "error.h"

namespace tk {

tk_status open_native_device(const Program &program, const char *, Device **) {
  return fail(TK_ERR_LIBRARY, "this library was linked without the code for devices of target %s", program.target);
}

}  // namespace tk
