/* Runs a model library: raw inputs on stdin, one after the other, raw outputs on stdout.
 *   cc run_model.c -I DIRECTORY_OF_TK_MODEL_H -o run_model -ldl && ./run_model ./model.so < x.raw > y.raw */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include "tk_model.h"

#define MOST 16 /* inputs, outputs, dimensions */

int main(int argc, char **argv) {
  void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
  const tk_model_api *tk = library ? dlsym(library, "tk_model_api_v1") : NULL;
  if (tk == NULL) return fprintf(stderr, "usage: run_model MODEL.so\n"), 2;
  tk_model *model;
  tk_context *context;
  if (tk->model_open(&model) || tk->context_open(model, NULL, &context)) return fputs(tk->last_error(), stderr), 1;
  int n[2] = {tk->model_input_count(model), tk->model_output_count(model)}, most = n[0] <= MOST && n[1] <= MOST;
  int64_t shapes[2][MOST][MOST], bytes[2][MOST];
  DLTensor tensors[2][MOST];
  for (int side = 0; side < 2 && most; ++side)
    for (int i = 0; i < n[side]; ++i) {
      tk_tensor_info info;
      if ((side == 0 ? tk->model_input : tk->model_output)(model, i, &info) || info.rank > MOST) return 1;
      for (int d = 0; d < info.rank; ++d) shapes[side][i][d] = info.dims[d].max;
      void *data = malloc((size_t)(bytes[side][i] = info.bytes) + 1);
      tensors[side][i] = (DLTensor){data, {kDLCPU, 0}, info.rank, info.dtype, shapes[side][i], NULL, 0};
      if (side == 0 && fread(data, (size_t)info.bytes, 1, stdin) != 1) return fputs("stdin is too short\n", stderr), 1;
    }
  if (!most || tk->context_run(context, tensors[0], n[0], tensors[1], n[1])) return fputs(tk->last_error(), stderr), 1;
  for (int i = 0; i < n[1]; ++i) fwrite(tensors[1][i].data, (size_t)bytes[1][i], 1, stdout);
  tk->context_close(context);
  tk->model_close(model);
  return 0;
}
