// Which features the processor and the operating system offer, by the names that compilers use.
#ifndef TK_CPU_FEATURES_H
#define TK_CPU_FEATURES_H

#include <cstddef>
#include <cstdint>

namespace tk {

enum class FeatureCheck { kPresent, kMissing, kUnknownOverride };

// Looks for each of `count` names. Names are compared without '-', '_', '.' and case: "avx512-vnni" is
// "avx512vnni". A name that this file does not know is missing. The environment variable TK_CPU_FEATURES,
// a comma-separated list such as "-avx512f,-amx-tile", hides features (for tests).
// On kMissing, `missing` receives the names, separated by ", "; on kUnknownOverride, the bad item.
FeatureCheck check_features(const char *const *names, int32_t count, char *missing, size_t missing_size);

// The highest micro-architecture level that this machine can run, such as "x86-64-v3".
const char *best_level();

// Asks the system to allow the tile registers to this process where any of `names` needs them.
bool enable_tiles(const char *const *names, int32_t count);

}  // namespace tk

#endif
