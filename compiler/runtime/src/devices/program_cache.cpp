#include "program_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>

namespace tk {
namespace {

// ---------------------------------------------------------------- SHA-256

constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};
constexpr size_t kBlock = 64, kDigits = 64;

uint32_t rotated(uint32_t x, int n) { return x >> n | x << (32 - n); }

void add_block(const unsigned char *block, uint32_t *state) {
  uint32_t w[64];
  for (int i = 0; i < 16; ++i)
    w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 | uint32_t{block[4 * i + 2]} << 8 |
           block[4 * i + 3];
  for (int i = 16; i < 64; ++i)
    w[i] = w[i - 16] + w[i - 7] + (rotated(w[i - 15], 7) ^ rotated(w[i - 15], 18) ^ w[i - 15] >> 3) +
           (rotated(w[i - 2], 17) ^ rotated(w[i - 2], 19) ^ w[i - 2] >> 10);
  uint32_t s[8];
  std::memcpy(s, state, sizeof s);
  for (int i = 0; i < 64; ++i) {
    const uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
    const uint32_t a = s[7] + (rotated(s[4], 6) ^ rotated(s[4], 11) ^ rotated(s[4], 25)) + choice + kRound[i] + w[i];
    const uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
    const uint32_t b = (rotated(s[0], 2) ^ rotated(s[0], 13) ^ rotated(s[0], 22)) + majority;
    std::memmove(s + 1, s, 7 * sizeof *s);
    s[4] += a;
    s[0] = a + b;
  }
  for (int i = 0; i < 8; ++i) state[i] += s[i];
}

// ---------------------------------------------------------------- places

// As in compiler/core/settings.py; empty where the environment names none.
std::string cache_root() {
  const char *home = std::getenv("HOME");
  if (const char *given = std::getenv("TK_CACHE_DIR"); given != nullptr && *given != '\0') {
    const bool in_home = given[0] == '~' && (given[1] == '/' || given[1] == '\0') && home != nullptr;
    return in_home ? std::string(home) + (given + 1) : given;
  }
  if (const char *base = std::getenv("XDG_CACHE_HOME"); base != nullptr && *base != '\0')
    return std::string(base) + "/tk";
  return home != nullptr && *home != '\0' ? std::string(home) + "/.cache/tk" : std::string();
}

std::string place_of(const std::string &key) {
  const std::string root = cache_root();
  return root.empty() ? root : root + "/programs/" + key.substr(0, 2) + "/" + key;
}

bool make_directories(const std::string &path) {
  for (size_t at = 1; at <= path.size(); ++at)
    if (at == path.size() || path[at] == '/') mkdir(path.substr(0, at).c_str(), 0777);
  struct stat found;
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

bool read_file(const std::string &path, std::string *content) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  struct stat found;
  bool whole = fstat(file, &found) == 0 && S_ISREG(found.st_mode);
  content->resize(whole ? static_cast<size_t>(found.st_size) : 0);
  for (size_t done = 0; whole && done < content->size();) {
    const ssize_t got = read(file, &(*content)[done], content->size() - done);
    whole = got > 0;
    done += whole ? static_cast<size_t>(got) : 0;
  }
  close(file);
  return whole;
}

bool write_all(int file, const std::string &content) {
  for (size_t done = 0; done < content.size();) {
    const ssize_t put = write(file, content.data() + done, content.size() - done);
    if (put <= 0) return false;
    done += static_cast<size_t>(put);
  }
  return fsync(file) == 0;
}

// Finished files of a key; those that a process is still writing begin with a dot.
std::vector<std::string> finished(const std::string &directory) {
  std::vector<std::string> names;
  DIR *entries = opendir(directory.c_str());
  if (entries == nullptr) return names;
  while (const dirent *entry = readdir(entries))
    if (std::strlen(entry->d_name) == kDigits) names.push_back(entry->d_name);
  closedir(entries);
  return names;
}

}  // namespace

std::string sha256(const void *data, size_t bytes) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const unsigned char *from = static_cast<const unsigned char *>(data);
  size_t left = bytes;
  for (; left >= kBlock; left -= kBlock, from += kBlock) add_block(from, state);
  unsigned char last[2 * kBlock] = {};
  if (left > 0) std::memcpy(last, from, left);
  last[left] = 0x80;
  const size_t end = left + 9 <= kBlock ? kBlock : 2 * kBlock;
  for (int i = 0; i < 8; ++i)
    last[end - 1 - static_cast<size_t>(i)] = static_cast<unsigned char>(uint64_t{bytes} * 8 >> 8 * i);
  for (size_t at = 0; at < end; at += kBlock) add_block(last + at, state);
  std::string text;
  for (const uint32_t word : state)
    for (int shift = 28; shift >= 0; shift -= 4) text += "0123456789abcdef"[word >> shift & 15];
  return text;
}

std::string program_key(const std::vector<std::string> &parts) {
  std::string joined;
  for (const std::string &part : parts) joined += std::to_string(part.size()) + ":" + part;
  return sha256(joined.data(), joined.size());
}

bool find_program(const std::string &key, std::string *content) {
  const std::string directory = place_of(key);
  if (directory.empty()) return false;
  for (const std::string &name : finished(directory)) {
    const std::string path = directory + "/" + name;
    if (!read_file(path, content)) continue;
    if (sha256(content->data(), content->size()) == name) {
      utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used now: what was not for the longest time goes first
      return true;
    }
    unlink(path.c_str());
  }
  return false;
}

void keep_program(const std::string &key, const std::string &content) {
  const std::string directory = place_of(key);
  if (directory.empty() || content.empty() || !make_directories(directory)) return;
  const std::string name = sha256(content.data(), content.size());
  std::string path = directory + "/." + name + ".XXXXXX.part";
  const int file = mkostemps(&path[0], 5, O_CLOEXEC);
  if (file < 0) return;
  const bool written = write_all(file, content);
  close(file);
  if (!written || rename(path.c_str(), (directory + "/" + name).c_str()) != 0) {
    unlink(path.c_str());
    return;
  }
  // One program for each key: what was kept before is superseded.
  for (const std::string &other : finished(directory))
    if (other != name) unlink((directory + "/" + other).c_str());
}

}  // namespace tk
