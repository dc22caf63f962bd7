/* The data of a library that is not code. Written by the linking step (elf.py, library.py): it costs no
 * compile time, may exceed 2 GiB, and nothing in it can be taken for code. */
#ifndef TK_BLOBS_H
#define TK_BLOBS_H

#include <stdint.h>

#include "tk_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Places are given in bytes from the start of this table: 64-bit distances, so that no instruction is
 * tied to where the constants lie, and nothing for the dynamic linker to do. */
typedef struct tk_blobs {
  int64_t constants; /* aligned to TK_ALIGNMENT, in a read-only segment of the file */
  int64_t constants_bytes;
  int64_t manifest; /* JSON, followed by a zero byte that manifest_bytes does not count */
  int64_t manifest_bytes;
  int64_t names; /* names of the inputs, then of the outputs, each ended by a zero byte; UTF-8 */
  int64_t names_bytes;
  int64_t images; /* tk_blob_image, one after the other */
  int64_t n_images;
} tk_blobs;

/* One built form of a device's kernels. All places are given from the start of tk_blobs_model. */
typedef struct tk_blob_image {
  int64_t kind, arch; /* strings that end with a zero byte */
  int64_t data, data_bytes; /* aligned to 16 bytes */
} tk_blob_image;

extern TK_HIDDEN const tk_blobs tk_blobs_model;

static inline const void *tk_blob(int64_t place) { return (const void *)((intptr_t)&tk_blobs_model + (intptr_t)place); }

#ifdef __cplusplus
}
#endif

#endif
