/* Runs the model of an image: inputs from .npy or raw files, or random; prints latency, writes outputs as .npy.
 * C99 and POSIX, and nothing but the C library; `tk package --format oci` compiles it.
 *
 * Exit codes: 0 done, 2 wrong usage, 3 an input or file cannot be used, 4 the machine lacks something,
 * 6 the self test found another result, 70 a defect. */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tk_model.h"

enum { DONE = 0, USAGE = 2, BAD_INPUT = 3, HOST = 4, WRONG_RESULT = 6, DEFECT = 70 };
enum { MOST_DIMS = 32, MOST_PATH = 4096, MOST_HEADER = 1 << 16 };

static const char usage[] =
    "usage: tk-run [option]...\n"
    "  --check             run the stored sample and compare; exit code 6 where the result differs\n"
    "  --describe          print inputs and outputs, run nothing\n"
    "  --input NAME=FILE   an input from a .npy file, or a raw one of the right size; others are random\n"
    "  --output-dir DIR    write outputs there: output0.npy, output1.npy ...\n"
    "  --repeat N          runs that are timed, after one that is not (default 1, without that one)\n"
    "  --threads N         threads to use (default: as compiled)\n"
    "  --seed N            seed of random inputs (default 0)\n"
    "  --device NAME       device of a library for one\n"
    "  --library FILE      the model library (default " TK_LIBRARY ")\n";

typedef struct {
  const char *name;
  tk_tensor_info info;
  DLTensor tensor;
  int64_t shape[MOST_DIMS];
  size_t bytes;
} value;

typedef struct {
  const char *library, *output_dir, *device;
  const char **inputs; /* NAME=FILE */
  int n_inputs;
  long repeat, threads;
  uint64_t seed;
  int check, describe;
} options;

static void fail(int code, const char *format, ...) {
  va_list rest;
  va_start(rest, format);
  fputs("tk-run: ", stderr);
  vfprintf(stderr, format, rest);
  fputc('\n', stderr);
  va_end(rest);
  exit(code);
}

static void *room(size_t bytes) {
  void *found = calloc(bytes + 64, 1);
  if (found == NULL) fail(HOST, "not enough memory for %zu bytes", bytes);
  return found;
}

/* ---------------------------------------------------------------- element types */

static size_t element_bytes(DLDataType dtype) { return ((size_t)dtype.bits * dtype.lanes + 7) / 8; }

/* What numpy calls an element type in a file; bfloat16 and floats of 8 bits, which it does not know, as their bits. */
static const char *descr_of(DLDataType dtype, char text[16]) {
  const char *kinds = dtype.code == kDLFloat ? "f" : dtype.code == kDLInt ? "i" : dtype.code == kDLBool ? "b" : "u";
  snprintf(text, 16, "%c%s%d", element_bytes(dtype) == 1 ? '|' : '<', kinds, (int)element_bytes(dtype));
  return text;
}

static float f32_of_bits(uint32_t bits) {
  float found;
  memcpy(&found, &bits, sizeof found);
  return found;
}

static double half(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, sign = bits >> 15;
  const double fraction = bits & 1023;
  double found = exponent == 0 ? ldexp(fraction, -24) : ldexp(1024 + fraction, exponent - 25);
  if (exponent == 31) found = fraction != 0 ? NAN : INFINITY;
  return sign ? -found : found;
}

static double element(const void *data, DLDataType dtype, size_t index) {
  const size_t size = element_bytes(dtype);
  uint64_t bits = 0;
  memcpy(&bits, (const char *)data + index * size, size); /* little-endian, as all our machines are */
  if (dtype.code == kDLBfloat) return f32_of_bits((uint32_t)bits << 16);
  if (dtype.code == kDLFloat && size == 2) return half((uint16_t)bits);
  if (dtype.code == kDLFloat && size == 4) return f32_of_bits((uint32_t)bits);
  if (dtype.code == kDLFloat) {
    double found;
    memcpy(&found, &bits, sizeof found);
    return found;
  }
  if (dtype.code == kDLInt) return (double)((int64_t)(bits << (64 - 8 * size)) >> (64 - 8 * size));
  return (double)bits;
}

static size_t count_of(const value *one) {
  size_t count = 1;
  for (int d = 0; d < one->tensor.ndim; ++d) count *= (size_t)one->shape[d];
  return count;
}

/* ---------------------------------------------------------------- files */

static char *read_all(const char *path, size_t *bytes) {
  FILE *file = fopen(path, "rb");
  long size = -1;
  if (file != NULL && fseek(file, 0, SEEK_END) == 0) size = ftell(file);
  if (size < 0 || fseek(file, 0, SEEK_SET) != 0) fail(BAD_INPUT, "cannot read %s", path);
  char *data = room((size_t)size);
  if (fread(data, 1, (size_t)size, file) != (size_t)size) fail(BAD_INPUT, "cannot read %s", path);
  fclose(file);
  *bytes = (size_t)size;
  return data;
}

/* The shape in the header of a .npy file, into `one`; returns where the elements begin. */
static size_t read_header(const char *path, const char *data, size_t bytes, value *one) {
  const unsigned char *raw = (const unsigned char *)data;
  size_t start = bytes >= 12 && raw[6] > 1 ? 12 : 10, length = 0;
  if (bytes >= start) {
    length = raw[8] | (size_t)raw[9] << 8;
    if (start == 12) length |= (size_t)raw[10] << 16 | (size_t)raw[11] << 24;
  }
  if (bytes < start || length > MOST_HEADER || start + length > bytes) fail(BAD_INPUT, "%s is cut off", path);
  char header[MOST_HEADER + 1], descr[16];
  memcpy(header, data + start, length);
  header[length] = 0;
  const char *type = strstr(header, "'descr':"), *shape = strstr(header, "'shape':");
  const int is_bfloat = one->info.dtype.code == kDLBfloat;
  descr_of(one->info.dtype, descr);
  type = type ? strchr(type + 8, '\'') : NULL;
  if (type == NULL || (strncmp(type + 1, descr, strlen(descr)) != 0 && !(is_bfloat && strncmp(type + 2, "V2", 2) == 0)))
    fail(BAD_INPUT, "the elements of %s are not those of the input, which are %s", path, descr);
  if (strstr(header, "'fortran_order': False") == NULL) fail(BAD_INPUT, "%s is not in row-major order", path);
  shape = shape ? strchr(shape, '(') : NULL;
  if (shape == NULL) fail(BAD_INPUT, "%s has no shape", path);
  one->tensor.ndim = 0;
  for (char *at = (char *)shape + 1; *at != ')' && *at != 0; at += strspn(at, ", ")) {
    char *end;
    const long long extent = strtoll(at, &end, 10);
    if (end == at || extent < 0 || one->tensor.ndim == MOST_DIMS) fail(BAD_INPUT, "the shape of %s cannot be read", path);
    one->shape[one->tensor.ndim++] = extent;
    at = end;
  }
  return start + length;
}

/* Shape and elements of one input from a file. */
static void read_value(const char *path, value *one) {
  size_t bytes, start = 0;
  char *data = read_all(path, &bytes);
  if (bytes >= 10 && memcmp(data, "\x93NUMPY", 6) == 0) start = read_header(path, data, bytes, one);
  double wanted = (double)element_bytes(one->info.dtype);
  for (int d = 0; d < one->tensor.ndim; ++d) wanted *= (double)one->shape[d];
  if ((double)(bytes - start) != wanted) fail(BAD_INPUT, "%s has %zu bytes of elements, not %.0f", path, bytes - start, wanted);
  one->bytes = bytes - start;
  one->tensor.data = room(one->bytes); /* aligned, which elements behind a header are not */
  memcpy(one->tensor.data, data + start, one->bytes);
  free(data);
}

static void write_value(const char *path, const value *one) {
  char header[1024], descr[16];
  int length = snprintf(header, sizeof header, "{'descr': '%s', 'fortran_order': False, 'shape': (",
                        descr_of(one->info.dtype, descr));
  for (int d = 0; d < one->tensor.ndim; ++d)
    length += snprintf(header + length, sizeof header - (size_t)length, "%" PRId64 ",", one->shape[d]);
  length += snprintf(header + length, sizeof header - (size_t)length, "), }");
  while ((length + 11) % 64 != 0) header[length++] = ' ';
  header[length++] = '\n';
  const unsigned char start[10] = {0x93, 'N', 'U', 'M', 'P', 'Y', 1, 0, (unsigned char)length, (unsigned char)(length >> 8)};
  const size_t bytes = count_of(one) * element_bytes(one->info.dtype);
  FILE *file = fopen(path, "wb");
  int is_written = file != NULL && fwrite(start, sizeof start, 1, file) == 1;
  is_written = is_written && fwrite(header, (size_t)length, 1, file) == 1;
  is_written = is_written && fwrite(one->tensor.data, 1, bytes, file) == bytes;
  if (file == NULL || fclose(file) != 0 || !is_written) fail(HOST, "cannot write %s", path);
}

/* ---------------------------------------------------------------- inputs and outputs */

/* A name from a model, for a terminal: control characters as question marks. */
static void print_name(const char *name) {
  for (; *name; ++name) putchar((unsigned char)*name < 32 || *name == 127 ? '?' : *name);
}

static void print_tensor(const char *kind, const value *one, int actual) {
  printf("%s ", kind);
  print_name(one->name);
  printf(" %s%d[", one->info.dtype.code == kDLFloat ? "float" : one->info.dtype.code == kDLInt ? "int"
                   : one->info.dtype.code == kDLBool ? "bool" : one->info.dtype.code == kDLBfloat ? "bfloat" : "uint",
         one->info.dtype.bits);
  for (int d = 0; d < (actual ? one->tensor.ndim : one->info.rank); ++d) {
    const tk_dim *dim = one->info.dims + d;
    if (d) putchar(',');
    if (actual || dim->symbol < 0) printf("%" PRId64, actual ? one->shape[d] : dim->min);
    else printf("%" PRId64 "..%" PRId64, dim->min, dim->max);
  }
  putchar(']');
}

static value *describe(const tk_model_api *tk, const tk_model *model, int is_output, int count) {
  value *found = room(sizeof(value) * (size_t)count);
  for (int i = 0; i < count; ++i) {
    value *one = found + i;
    if ((is_output ? tk->model_output : tk->model_input)(model, i, &one->info)) fail(DEFECT, "%s", tk->last_error());
    if (one->info.rank > MOST_DIMS) fail(DEFECT, "a tensor has more than %d dimensions", MOST_DIMS);
    if (element_bytes(one->info.dtype) > 8) fail(DEFECT, "elements of more than 8 bytes are not known here");
    if (one->info.dtype.bits < 8) fail(BAD_INPUT, "elements of %d bits are not known here", one->info.dtype.bits);
    one->name = one->info.name;
    /* An open dimension has its smallest extent, as long as no file says otherwise. */
    for (int d = 0; d < one->info.rank; ++d) one->shape[d] = one->info.dims[d].min;
    one->tensor = (DLTensor){NULL, {kDLCPU, 0}, one->info.rank, one->info.dtype, one->shape, NULL, 0};
  }
  return found;
}

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
  uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

/* Floats from -1 to 1, bits for truth values; zeros for other integers, which may be indices. */
static void fill_random(value *one, uint64_t seed) {
  const DLDataType dtype = one->info.dtype;
  const size_t count = count_of(one), size = element_bytes(dtype);
  one->bytes = count * size;
  one->tensor.data = room(one->bytes);
  for (size_t i = 0; i < count; ++i) {
    const uint64_t random = next_random(&seed);
    const double real = (double)(random >> 11) * 0x1p-52 - 1;
    const float single = (float)real;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    char *place = (char *)one->tensor.data + i * size;
    if (dtype.code == kDLFloat && size == 8) memcpy(place, &real, 8);
    else if (dtype.code == kDLFloat && size == 4) memcpy(place, &single, 4);
    else if (dtype.code == kDLBfloat) memcpy(place, (char *)&bits + 2, 2);
    else if (dtype.code == kDLFloat) { /* a power of two from 2^-14 to 1, with its sign */
      const uint16_t small = (uint16_t)((random & 0x8000) | (1 + random % 15) << 10);
      memcpy(place, &small, 2);
    } else if (dtype.code == kDLBool) *place = (char)(random & 1);
  }
}

static void take_inputs(const options *asked, value *inputs, int count) {
  for (int i = 0; i < asked->n_inputs; ++i) {
    const char *equals = strrchr(asked->inputs[i], '=');
    int found = -1;
    for (int k = 0; equals && k < count; ++k)
      if (strlen(inputs[k].name) == (size_t)(equals - asked->inputs[i]) &&
          strncmp(inputs[k].name, asked->inputs[i], (size_t)(equals - asked->inputs[i])) == 0)
        found = k;
    if (found < 0) fail(USAGE, "--input %s: NAME=FILE, with a name that --describe lists", asked->inputs[i]);
    read_value(equals + 1, inputs + found);
  }
  for (int k = 0; k < count; ++k)
    if (inputs[k].tensor.data == NULL) fill_random(inputs + k, asked->seed + (uint64_t)k);
}

/* ---------------------------------------------------------------- runs */

static double seconds_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static int exit_code(tk_status status) {
  if (status == TK_ERR_INPUT || status == TK_ERR_OUTPUT) return BAD_INPUT;
  return status == TK_ERR_HOST || status == TK_ERR_MEMORY || status == TK_ERR_DEVICE ? HOST : DEFECT;
}

static void run_once(const tk_model_api *tk, tk_context *context, const value *inputs, int n_inputs, value *outputs,
                     int n_outputs) {
  DLTensor *tensors = room(sizeof(DLTensor) * (size_t)(n_inputs + n_outputs));
  for (int i = 0; i < n_inputs; ++i) tensors[i] = inputs[i].tensor;
  for (int i = 0; i < n_outputs; ++i) {
    tensors[n_inputs + i] = outputs[i].tensor;
    tensors[n_inputs + i].data = NULL; /* the context's own memory, until its next run */
    tensors[n_inputs + i].ndim = MOST_DIMS;
  }
  const tk_status status = tk->context_run(context, tensors, n_inputs, tensors + n_inputs, n_outputs);
  if (status) fail(exit_code(status), "%s", tk->last_error());
  for (int i = 0; i < n_outputs; ++i) outputs[i].tensor = tensors[n_inputs + i];
  free(tensors);
}

static void measure(const options *asked, const tk_model_api *tk, tk_context *context, const value *inputs, int n_inputs,
                    value *outputs, int n_outputs) {
  double *times = room(sizeof(double) * (size_t)asked->repeat);
  if (asked->repeat > 1) run_once(tk, context, inputs, n_inputs, outputs, n_outputs);
  for (long i = 0; i < asked->repeat; ++i) {
    const double start = seconds_now();
    run_once(tk, context, inputs, n_inputs, outputs, n_outputs);
    times[i] = (seconds_now() - start) * 1e3;
  }
  qsort(times, (size_t)asked->repeat, sizeof(double), by_size);
  printf("latency %.3f ms (least %.3f, most %.3f, runs %ld, threads %d)\n", times[asked->repeat / 2], times[0],
         times[asked->repeat - 1], asked->repeat, (int)tk->context_threads(context));
  free(times);
}

static void show_outputs(const options *asked, const value *outputs, int count) {
  for (int i = 0; i < count; ++i) {
    const value *one = outputs + i;
    const size_t elements = count_of(one);
    double least = INFINITY, most = -INFINITY, sum = 0;
    for (size_t k = 0; k < elements; ++k) {
      const double x = element(one->tensor.data, one->info.dtype, k);
      least = x < least || x != x ? x : least, most = x > most || x != x ? x : most, sum += x;
    }
    print_tensor("output", one, 1);
    if (elements) printf(" min %.6g max %.6g mean %.6g", least, most, sum / (double)elements);
    if (asked->output_dir) {
      char path[MOST_PATH];
      if (snprintf(path, sizeof path, "%s/output%d.npy", asked->output_dir, i) >= MOST_PATH) fail(USAGE, "the path is too long");
      write_value(path, one);
      printf(" -> %s", path);
    }
    putchar('\n');
  }
}

/* ---------------------------------------------------------------- self test */

static const char *sample_file(const options *asked, const char *kind, int index, char path[MOST_PATH]) {
  const char *slash = strrchr(asked->library, '/');
  const int folder = slash ? (int)(slash - asked->library) + 1 : 0;
  if (snprintf(path, MOST_PATH, "%.*ssample/%s%d.npy", folder, asked->library, kind, index) >= MOST_PATH)
    fail(USAGE, "the path is too long");
  return path;
}

/* The largest error as a part of the largest magnitude of what was expected. */
static double worst_error(const value *found, const value *expected) {
  double scale = 0, worst = 0;
  const size_t count = count_of(expected);
  for (size_t k = 0; k < count; ++k) {
    const double want = element(expected->tensor.data, expected->info.dtype, k);
    const double have = element(found->tensor.data, found->info.dtype, k);
    if (isfinite(want) && fabs(want) > scale) scale = fabs(want);
    if (have == want || (have != have && want != want)) continue;
    const double error = fabs(have - want);
    if (!(error <= worst)) worst = error;
    if (!(worst < INFINITY)) return INFINITY;
  }
  return scale > 0 ? worst / scale : worst;
}

static int compare(const options *asked, const value *outputs, int count) {
  int code = DONE;
  for (int i = 0; i < count; ++i) {
    char path[MOST_PATH];
    value expected = outputs[i];
    expected.tensor.shape = expected.shape;
    read_value(sample_file(asked, "output", i, path), &expected);
    const int is_short = outputs[i].info.dtype.bits < 32, is_float = outputs[i].info.dtype.code == kDLFloat || outputs[i].info.dtype.code == kDLBfloat;
    const double tolerance = !is_float ? 0 : is_short ? 1e-2 : 1e-4;
    const int same_shape = expected.tensor.ndim == outputs[i].tensor.ndim &&
                           memcmp(expected.shape, outputs[i].shape, sizeof(int64_t) * (size_t)expected.tensor.ndim) == 0;
    const double error = same_shape ? worst_error(outputs + i, &expected) : INFINITY;
    print_tensor("output", outputs + i, 1);
    printf(" error %.1e of the scale, allowed %.1e: %s\n", error, tolerance, error <= tolerance ? "same" : "DIFFERENT");
    if (!(error <= tolerance)) code = WRONG_RESULT;
    free(expected.tensor.data);
  }
  puts(code ? "self test failed" : "self test passed");
  return code;
}

/* ---------------------------------------------------------------- command line */

static long whole(const char *option, const char *text, long least, long most) {
  char *end;
  const long found = strtol(text, &end, 10);
  if (*text == 0 || *end != 0 || found < least || found > most)
    fail(USAGE, "%s %s: a whole number from %ld to %ld", option, text, least, most);
  return found;
}

static options read_options(int argc, char **argv) {
  options found = {TK_LIBRARY, NULL, NULL, room(sizeof(char *) * (size_t)argc), 0, 1, 0, 0, 0, 0};
  for (int i = 1; i < argc; ++i) {
    const char *name = argv[i];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) fputs(usage, stdout), exit(DONE);
    if (strcmp(name, "--check") == 0) { found.check = 1; continue; }
    if (strcmp(name, "--describe") == 0) { found.describe = 1; continue; }
    const char *given = i + 1 < argc ? argv[++i] : NULL;
    if (given == NULL) fail(USAGE, "unknown option, or one without its value: %s\n%s", name, usage);
    if (strcmp(name, "--library") == 0) found.library = given;
    else if (strcmp(name, "--input") == 0) found.inputs[found.n_inputs++] = given;
    else if (strcmp(name, "--output-dir") == 0) found.output_dir = given;
    else if (strcmp(name, "--device") == 0) found.device = given;
    else if (strcmp(name, "--repeat") == 0) found.repeat = whole(name, given, 1, 10000000);
    else if (strcmp(name, "--threads") == 0) found.threads = whole(name, given, 1, 4096);
    else if (strcmp(name, "--seed") == 0) found.seed = (uint64_t)whole(name, given, 0, 2147483647);
    else fail(USAGE, "unknown option: %s\n%s", name, usage);
  }
  if (found.check && found.n_inputs) fail(USAGE, "--check has inputs of its own");
  return found;
}

int main(int argc, char **argv) {
  const options asked = read_options(argc, argv);
  setvbuf(stdout, NULL, _IOLBF, 0);
  void *library = dlopen(asked.library, RTLD_NOW);
  const tk_model_api *tk = library ? dlsym(library, "tk_model_api_v1") : NULL;
  if (tk == NULL) fail(HOST, "%s", dlerror());
  if (tk->struct_size < sizeof *tk) fail(BAD_INPUT, "%s has an older interface than this program", asked.library);
  tk_model *model;
  tk_context *context;
  tk_status status = tk->model_open_on(asked.device, &model);
  if (status) fail(exit_code(status), "%s", tk->last_error());
  const int n_inputs = tk->model_input_count(model), n_outputs = tk->model_output_count(model);
  value *inputs = describe(tk, model, 0, n_inputs), *outputs = describe(tk, model, 1, n_outputs);
  for (int i = 0; i < n_inputs && asked.describe; ++i) print_tensor("input", inputs + i, 0), putchar('\n');
  for (int i = 0; i < n_outputs && asked.describe; ++i) print_tensor("output", outputs + i, 0), putchar('\n');
  if (asked.describe) return DONE;
  const tk_context_options wanted = {sizeof wanted, (int32_t)asked.threads, 0, NULL};
  status = tk->context_open(model, &wanted, &context);
  if (status) fail(exit_code(status), "%s", tk->last_error());
  char path[MOST_PATH];
  for (int i = 0; i < n_inputs && asked.check; ++i) read_value(sample_file(&asked, "input", i, path), inputs + i);
  take_inputs(&asked, inputs, n_inputs);
  measure(&asked, tk, context, inputs, n_inputs, outputs, n_outputs);
  const char *device = tk->model_device(model);
  if (*device) printf("device %s\n", device);
  if (asked.check) return compare(&asked, outputs, n_outputs);
  show_outputs(&asked, outputs, n_outputs);
  tk->context_close(context);
  tk->model_close(model);
  return DONE;
}
