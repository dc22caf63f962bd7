/* The data of a library that is not code. Defined by the assembler file that the linking step writes, so
 * that it costs no compile time, may exceed 2 GiB, and nothing in it can be taken for code. */
#ifndef TK_BLOBS_H
#define TK_BLOBS_H

#include <stdint.h>

#include "tk_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Pointers are filled in by the dynamic linker (64-bit relative relocations): no code is tied to the
 * distance between itself and the constants. */
typedef struct tk_blobs {
  const unsigned char *constants; /* aligned to TK_ALIGNMENT, in a read-only segment of the file */
  int64_t constants_bytes;
  const char *manifest; /* JSON, followed by a zero byte that manifest_bytes does not count */
  int64_t manifest_bytes;
  const char *names; /* names of the inputs, then of the outputs, each ended by a zero byte; UTF-8 */
  int64_t names_bytes;
} tk_blobs;

extern TK_HIDDEN const tk_blobs tk_blobs_model;

#ifdef __cplusplus
}
#endif

#endif
