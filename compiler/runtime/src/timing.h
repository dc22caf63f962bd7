// What is measured of a run, beside its results.
#ifndef TK_TIMING_H
#define TK_TIMING_H

#include "tk_model.h"

namespace tk {

struct Timing {
  tk_step_time *steps = nullptr;  // null, or room for one entry per step, whichever plan runs
  tk_run_times *run = nullptr;    // null, or of the run as a whole
};

}  // namespace tk

#endif
