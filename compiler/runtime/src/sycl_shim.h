/* What lies between a model library and the SYCL runtime: a small shared object with a C interface, built by the
 * compiler against the runtime's headers (runtime/sycl/shim.cpp), carried in the library as an image of kind
 * "sycl-shim" and opened by devices/sycl.cpp. Everything here returns a tk_status; SYCL's exceptions end here. */
#ifndef TK_SYCL_SHIM_H
#define TK_SYCL_SHIM_H

#include <stdint.h>

#include "tk_model.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct tk_sycl_image {
  const char *kind; /* "source", "syclbin", "sycl-shim", "kernel-suffix"; "piece": source of which the binary is wanted */
  const char *arch; /* what it is for; empty: any */
  const unsigned char *data;
  int64_t bytes;
} tk_sycl_image;

typedef struct tk_sycl_program {
  const char *target; /* for messages */
  const tk_sycl_image *images;
  int32_t n_images;
  const char *const *functions;
  int32_t n_functions;
  const char *own_arch; /* of the shim itself: what kernels in it are for */
} tk_sycl_program;

typedef struct tk_sycl_device tk_sycl_device; /* shared by threads */
typedef struct tk_sycl_queue tk_sycl_queue;   /* used by one thread at a time */

typedef struct tk_sycl_shim {
  const char *(*last_error)(void); /* of the calling thread */
  /* Finds the device that `selector` names and loads the kernels for it. */
  int32_t (*open)(const tk_sycl_program *program, const char *selector, tk_sycl_device **device);
  const char *(*describe)(const tk_sycl_device *device);
  int32_t (*allocate)(tk_sycl_device *device, int64_t bytes, void **memory);
  void (*release)(tk_sycl_device *device, void *memory);
  void (*close)(tk_sycl_device *device);
  /* On the caller's sycl::queue, which has to be in order, or on one of its own. */
  int32_t (*open_queue)(tk_sycl_device *device, void *queue, tk_sycl_queue **opened);
  void (*close_queue)(tk_sycl_queue *queue);
  int32_t (*copy)(tk_sycl_queue *queue, void *to, const void *from, int64_t bytes); /* in any direction */
  int32_t (*launch)(tk_sycl_queue *queue, int32_t function, const uint32_t *grid, const uint32_t *block,
                    void *const *args, int32_t n_args);
  int32_t (*mark)(tk_sycl_queue *queue, int32_t number);
  int32_t (*elapsed)(tk_sycl_queue *queue, int32_t from, int32_t to, int64_t *nanoseconds);
  int32_t (*finish)(tk_sycl_queue *queue);
  /* The kernels as the device runs them, for an image of kind "syclbin"; to be given back with free(). */
  int32_t (*content)(tk_sycl_device *device, unsigned char **data, int64_t *bytes);
} tk_sycl_shim;

#define TK_SYCL_SHIM_SYMBOL "tk_sycl_shim_v1"
const tk_sycl_shim *tk_sycl_shim_v1(void);

#ifdef __cplusplus
}
#endif

#endif
