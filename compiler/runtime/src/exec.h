// One running inference: what tk_plan.h calls tk_exec.
#ifndef TK_EXEC_H
#define TK_EXEC_H

#include "pool.h"
#include "tk_plan.h"

struct tk_exec {
  tk::Team team;                 // n_workers == 0: everything runs in the calling thread
  int32_t threads;               // bound of tid
  unsigned char *kernel_scratch;
  const int64_t *symbols;
};

#endif
