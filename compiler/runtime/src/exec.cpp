#include "exec.h"

extern "C" {

void tk_parallel(tk_exec *exec, tk_body body, void *const *bufs, const int64_t *env, int64_t extent) {
  if (extent <= 0) return;
  if (exec->team.n_workers == 0 || extent == 1) return body(bufs, env, 0, extent, exec->team.scratch, 0);
  tk::tk_pool_v1.parallel(&exec->team, body, bufs, env, extent);
}

unsigned char *tk_scratch(tk_exec *exec) { return exec->kernel_scratch; }

int tk_threads(const tk_exec *exec) { return exec->threads; }

const int64_t *tk_symbols(const tk_exec *exec) { return exec->symbols; }

}  // extern "C"
