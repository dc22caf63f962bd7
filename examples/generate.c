/* Generates tokens with a decoder that keeps keys and values: the context extends them in place.
 *   cc generate.c -I DIRECTORY_OF_TK_MODEL_H -o generate -ldl && ./generate ./decoder.so 64 7 3 41 12
 * The model takes input_ids, attention_mask and position_ids, and makes logits [1, tokens, words] of float32. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include "tk_model.h"

#define ROOM 4096 /* tokens */

static int64_t likeliest(const float *logits, int64_t words) {
  int64_t best = 0;
  for (int64_t i = 1; i < words; ++i) best = logits[i] > logits[best] ? i : best;
  return best;
}

int main(int argc, char **argv) {
  void *library = argc > 3 && argc < ROOM ? dlopen(argv[1], RTLD_NOW) : NULL;
  const tk_model_api *tk = library ? dlsym(library, "tk_model_api_v1") : NULL;
  if (tk == NULL) return fprintf(stderr, "usage: generate DECODER.so STEPS TOKEN...\n"), 2;
  tk_model *model;
  tk_context *context;
  if (tk->model_open(&model) || tk->context_open(model, NULL, &context)) return fputs(tk->last_error(), stderr), 1;
  static int64_t ids[ROOM], mask[ROOM], places[ROOM];
  int64_t count = argc - 3, kept = 0, shape[] = {1, count}, total[] = {1, count}, made[3];
  for (int64_t i = 0; i < ROOM; ++i) mask[i] = 1, places[i] = i, ids[i] = i < count ? atoll(argv[i + 3]) : 0;
  const DLDataType i64 = {kDLInt, 64, 1}, f32 = {kDLFloat, 32, 1};
  for (int step = atoi(argv[2]); step > 0 && total[1] < ROOM; --step) {
    /* All but states, in the order of the model; logits into memory of the context. */
    DLTensor inputs[] = {{ids, {kDLCPU, 0}, 2, i64, shape, NULL, 0},
                         {mask, {kDLCPU, 0}, 2, i64, total, NULL, 0},
                         {places + kept, {kDLCPU, 0}, 2, i64, shape, NULL, 0}};
    DLTensor logits = {NULL, {kDLCPU, 0}, 3, f32, made, NULL, 0};
    if (tk->context_run(context, inputs, 3, &logits, 1)) return fprintf(stderr, "%s\n", tk->last_error()), 1;
    ids[0] = likeliest((float *)logits.data + (made[1] - 1) * made[2], made[2]);
    printf("%lld\n", (long long)ids[0]);
    kept = total[1]++, shape[1] = 1;
  }
  tk->context_close(context);
  tk->model_close(model);
  return 0;
}
