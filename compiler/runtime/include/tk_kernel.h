/* What generated kernels of processors include. */
#ifndef TK_KERNEL_H
#define TK_KERNEL_H

#include "tk_libm.h"
#include "tk_loops.h"
#include "tk_math.h"
#include "tk_plan.h"
#include "tk_vector.h"

#endif /* TK_KERNEL_H */
