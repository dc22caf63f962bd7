#include "cpu_features.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <sys/auxv.h>
#endif

namespace tk {
namespace {

struct Feature {
  const char *name;
  uint32_t leaf, subleaf;
  char reg;
  uint8_t bit;
  uint32_t state;  // bits of XCR0 that the system must have enabled
};

#if defined(__x86_64__)
constexpr uint32_t kYmm = 0x6, kZmm = 0xe6, kTile = 0x60000;

// Intel SDM volume 2, CPUID; AMD APM volume 3, appendix E. Names as in GCC's and Clang's -m options.
constexpr Feature kFeatures[] = {
    {"cmov", 1, 0, 'd', 15, 0},
    {"mmx", 1, 0, 'd', 23, 0},
    {"fxsr", 1, 0, 'd', 24, 0},
    {"sse", 1, 0, 'd', 25, 0},
    {"sse2", 1, 0, 'd', 26, 0},
    {"sse3", 1, 0, 'c', 0, 0},
    {"pclmul", 1, 0, 'c', 1, 0},
    {"pclmulqdq", 1, 0, 'c', 1, 0},
    {"ssse3", 1, 0, 'c', 9, 0},
    {"fma", 1, 0, 'c', 12, kYmm},
    {"cx16", 1, 0, 'c', 13, 0},
    {"sse41", 1, 0, 'c', 19, 0},
    {"sse42", 1, 0, 'c', 20, 0},
    {"movbe", 1, 0, 'c', 22, 0},
    {"popcnt", 1, 0, 'c', 23, 0},
    {"aes", 1, 0, 'c', 25, 0},
    {"xsave", 1, 0, 'c', 26, 0},
    {"osxsave", 1, 0, 'c', 27, 0},
    {"avx", 1, 0, 'c', 28, kYmm},
    {"f16c", 1, 0, 'c', 29, kYmm},
    {"rdrnd", 1, 0, 'c', 30, 0},
    {"rdrand", 1, 0, 'c', 30, 0},
    {"fsgsbase", 7, 0, 'b', 0, 0},
    {"bmi", 7, 0, 'b', 3, 0},
    {"bmi1", 7, 0, 'b', 3, 0},
    {"avx2", 7, 0, 'b', 5, kYmm},
    {"bmi2", 7, 0, 'b', 8, 0},
    {"avx512f", 7, 0, 'b', 16, kZmm},
    {"avx512dq", 7, 0, 'b', 17, kZmm},
    {"rdseed", 7, 0, 'b', 18, 0},
    {"adx", 7, 0, 'b', 19, 0},
    {"avx512ifma", 7, 0, 'b', 21, kZmm},
    {"clflushopt", 7, 0, 'b', 23, 0},
    {"clwb", 7, 0, 'b', 24, 0},
    {"avx512cd", 7, 0, 'b', 28, kZmm},
    {"sha", 7, 0, 'b', 29, 0},
    {"avx512bw", 7, 0, 'b', 30, kZmm},
    {"avx512vl", 7, 0, 'b', 31, kZmm},
    {"avx512vbmi", 7, 0, 'c', 1, kZmm},
    {"avx512vbmi2", 7, 0, 'c', 6, kZmm},
    {"gfni", 7, 0, 'c', 8, 0},
    {"vaes", 7, 0, 'c', 9, kYmm},
    {"vpclmulqdq", 7, 0, 'c', 10, kYmm},
    {"avx512vnni", 7, 0, 'c', 11, kZmm},
    {"avx512bitalg", 7, 0, 'c', 12, kZmm},
    {"avx512vpopcntdq", 7, 0, 'c', 14, kZmm},
    {"movdiri", 7, 0, 'c', 27, 0},
    {"movdir64b", 7, 0, 'c', 28, 0},
    {"avx512vp2intersect", 7, 0, 'd', 8, kZmm},
    {"serialize", 7, 0, 'd', 14, 0},
    {"amxbf16", 7, 0, 'd', 22, kTile},
    {"avx512fp16", 7, 0, 'd', 23, kZmm},
    {"amxtile", 7, 0, 'd', 24, kTile},
    {"amxint8", 7, 0, 'd', 25, kTile},
    {"avxvnni", 7, 1, 'a', 4, kYmm},
    {"avx512bf16", 7, 1, 'a', 5, kZmm},
    {"amxfp16", 7, 1, 'a', 21, kTile},
    {"avxifma", 7, 1, 'a', 23, kYmm},
    {"avxvnniint8", 7, 1, 'd', 4, kYmm},
    {"avxneconvert", 7, 1, 'd', 5, kYmm},
    {"avxvnniint16", 7, 1, 'd', 10, kYmm},
    {"xsaveopt", 0xd, 1, 'a', 0, 0},
    {"xsavec", 0xd, 1, 'a', 1, 0},
    {"xsaves", 0xd, 1, 'a', 3, 0},
    {"sahf", 0x80000001, 0, 'c', 0, 0},
    {"lahflm", 0x80000001, 0, 'c', 0, 0},
    {"lzcnt", 0x80000001, 0, 'c', 5, 0},
    {"abm", 0x80000001, 0, 'c', 5, 0},
    {"sse4a", 0x80000001, 0, 'c', 6, 0},
    {"prfchw", 0x80000001, 0, 'c', 8, 0},
    {"fma4", 0x80000001, 0, 'c', 16, kYmm},
};

// x86-64 psABI, section 3.1.1, micro-architecture levels.
const char *const kLevel2[] = {"cx16", "sahf", "popcnt", "sse3", "sse41", "sse42", "ssse3"};
const char *const kLevel3[] = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "lzcnt", "movbe", "osxsave"};
const char *const kLevel4[] = {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"};

uint32_t enabled_state() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c & (1u << 27)) == 0) return 0;
  uint32_t low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool machine_has(const Feature &feature) {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(feature.leaf, feature.subleaf, &a, &b, &c, &d) == 0) return false;
  if (feature.leaf == 7 && feature.subleaf != 0) {
    uint32_t last = 0;
    if (__get_cpuid_count(7, 0, &last, &b, &c, &d) == 0 || last < feature.subleaf) return false;
    if (__get_cpuid_count(7, feature.subleaf, &a, &b, &c, &d) == 0) return false;
  }
  const uint32_t value = feature.reg == 'a' ? a : feature.reg == 'b' ? b : feature.reg == 'c' ? c : d;
  if ((value >> feature.bit & 1u) == 0) return false;
  return feature.state == 0 || (enabled_state() & feature.state) == feature.state;
}
#else
// leaf 0: AT_HWCAP, leaf 1: AT_HWCAP2; bits of linux/arch/arm64/include/uapi/asm/hwcap.h. Names as in -march=.
constexpr Feature kFeatures[] = {
    {"fp", 0, 0, ' ', 0, 0},    {"simd", 0, 0, ' ', 1, 0},     {"aes", 0, 0, ' ', 3, 0},
    {"sha2", 0, 0, ' ', 6, 0},  {"crc", 0, 0, ' ', 7, 0},      {"lse", 0, 0, ' ', 8, 0},
    {"fp16", 0, 0, ' ', 10, 0}, {"dotprod", 0, 0, ' ', 20, 0}, {"sve", 0, 0, ' ', 22, 0},
    {"sve2", 1, 0, ' ', 1, 0},  {"i8mm", 1, 0, ' ', 13, 0},    {"bf16", 1, 0, ' ', 14, 0},
};

bool machine_has(const Feature &feature) {
  return (getauxval(feature.leaf == 0 ? AT_HWCAP : AT_HWCAP2) >> feature.bit & 1u) != 0;
}
#endif

// Copies [name, end) without '-', '_' and '.', in lower case; false when it does not fit.
bool canonical(const char *name, const char *end, char *out, size_t size) {
  size_t used = 0;
  for (; name != end; ++name) {
    const char c = *name;
    if (c == '-' || c == '_' || c == '.' || c == ' ') continue;
    if (used + 1 >= size) return false;
    out[used++] = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  out[used] = '\0';
  return true;
}

const Feature *find(const char *canonical_name) {
  for (const Feature &feature : kFeatures)
    if (std::strcmp(feature.name, canonical_name) == 0) return &feature;
  return nullptr;
}

bool same_bit(const Feature &x, const Feature &y) {
  return x.leaf == y.leaf && x.subleaf == y.subleaf && x.reg == y.reg && x.bit == y.bit;
}

// Calls use(item, item_end) for each non-empty item of TK_CPU_FEATURES; stops when it returns false.
template <typename Use>
bool each_hidden(Use use) {
  const char *list = std::getenv("TK_CPU_FEATURES");
  while (list != nullptr && *list != '\0') {
    while (*list == ' ') ++list;
    const char *end = std::strchr(list, ',');
    const char *stop = end != nullptr ? end : list + std::strlen(list);
    if (stop != list && !use(list, stop)) return false;
    list = end != nullptr ? end + 1 : nullptr;
  }
  return true;
}

const Feature *hidden_feature(const char *item, const char *end) {
  char name[64];
  return canonical(item, end, name, sizeof name) ? find(name) : nullptr;
}

bool present(const Feature &feature) {
  const bool visible = each_hidden([&feature](const char *item, const char *end) {
    const Feature *hidden = hidden_feature(item, end);
    return hidden == nullptr || !same_bit(*hidden, feature);
  });
  return visible && machine_has(feature);
}

bool present(const char *name) {
  char text[64];
  if (!canonical(name, name + std::strlen(name), text, sizeof text)) return false;
  const Feature *feature = find(text);
  return feature != nullptr && present(*feature);
}

#if defined(__x86_64__)
template <size_t N>
bool all_present(const char *const (&names)[N]) {
  for (const char *name : names)
    if (!present(name)) return false;
  return true;
}
#endif

}  // namespace

FeatureCheck check_features(const char *const *names, int32_t count, char *missing, size_t missing_size) {
  const bool known = each_hidden([&](const char *item, const char *end) {
    if (*item == '-' && hidden_feature(item, end) != nullptr) return true;
    std::snprintf(missing, missing_size, "%.*s", static_cast<int>(end - item), item);
    return false;
  });
  if (!known) return FeatureCheck::kUnknownOverride;
  size_t used = 0;
  missing[0] = '\0';
  for (int32_t i = 0; i < count; ++i) {
    if (present(names[i])) continue;
    const int n = std::snprintf(missing + used, missing_size - used, "%s%s", used == 0 ? "" : ", ", names[i]);
    if (n < 0 || static_cast<size_t>(n) >= missing_size - used) break;
    used += static_cast<size_t>(n);
  }
  return missing[0] == '\0' ? FeatureCheck::kPresent : FeatureCheck::kMissing;
}

#if defined(__x86_64__)
const char *best_level() {
  if (!all_present(kLevel2)) return "x86-64";
  if (!all_present(kLevel3)) return "x86-64-v2";
  return all_present(kLevel4) ? "x86-64-v4" : "x86-64-v3";
}

bool enable_tiles(const char *const *names, int32_t count) {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA
  for (int32_t i = 0; i < count; ++i)
    if (std::strncmp(names[i], "amx", 3) == 0) return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return true;
}
#else
const char *best_level() { return "armv8-a"; }
bool enable_tiles(const char *const *, int32_t) { return true; }
#endif

}  // namespace tk
