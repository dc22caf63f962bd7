// What a model library asks of the library that its kernels were compiled into for the emulator
// (compiler/verify/emulate.py makes it, TK_EMULATOR names it).
#ifndef TK_EMULATION_H
#define TK_EMULATION_H

#include <cstdint>

namespace tk {

struct EmulatedLaunch {
  const char *function;
  uint32_t grid[3], block[3];
  void *const *args;
  int32_t n_args;
};

struct Emulation {
  int32_t version;  // kEmulationVersion
  const char *text;  // of the module: what the kernels were compiled from
  int64_t text_bytes;
  // Runs the whole grid. False: a defect was found or the launch is not possible; `message` says what, in at most
  // `size` bytes with the zero at the end.
  bool (*launch)(const EmulatedLaunch &launch, char *message, int64_t size);
  bool checked;  // every access is looked after
};

constexpr int32_t kEmulationVersion = 2;
constexpr char kEmulationSymbol[] = "tk_emulation_v1";

}  // namespace tk

#endif
