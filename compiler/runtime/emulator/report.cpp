// Messages: who did what to which element, and the line of the module where. Lines come from addr2line, if there is one.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "emulator.h"

extern "C" {
extern char **environ;
extern const char tk_emu_text[];  // of the module; ends with a zero byte
}

namespace tk::emu {
namespace {

constexpr char kModuleFile[] = "kernels.cpp:";  // what a source of kernels is called; its lines are those of the module
constexpr size_t kLongestLine = 160;

std::string run_addr2line(const std::string &path, uintptr_t offset) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  std::string words[] = {"addr2line", "-i", "-e", path, text("0x%zx", static_cast<size_t>(offset))};
  std::vector<char *> argv;
  for (std::string &word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  const bool started = posix_spawnp(&child, argv[0], &actions, nullptr, argv.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  std::string output;
  char part[512];
  for (ssize_t got; started && (got = read(ends[0], part, sizeof part)) > 0;) output.append(part, static_cast<size_t>(got));
  close(ends[0]);
  if (started) waitpid(child, nullptr, 0);
  return output;
}

// The last line of the module among the places that a call was inlined through: that of the kernel itself.
int module_line(const std::string &places) {
  const size_t at = places.rfind(kModuleFile);
  return at == std::string::npos ? 0 : std::atoi(places.c_str() + at + std::strlen(kModuleFile));
}

std::string dim_text(const tk_emu_uint3 &at) { return text("(%u, %u, %u)", at.x, at.y, at.z); }

}  // namespace

std::string text(const char *format, ...) {
  va_list args;
  va_start(args, format);
  char buffer[1024];
  std::vsnprintf(buffer, sizeof buffer, format, args);
  va_end(args);
  return buffer;
}

const char *verb(Use use) { return use == Use::kRead ? "reads" : use == Use::kWrite ? "writes" : "updates"; }

std::string block_text(const Worker &from) { return "block " + dim_text(from.block_index); }

std::string thread_text(const Worker &from, uint32_t number) {
  return "thread " + dim_text(from.threads[number].index) + " of " + block_text(from);
}

std::string fellow_text(const Worker &from, uint32_t number) {
  return "thread " + dim_text(from.threads[number].index) + " of the same block";
}

std::string line_text(int line) {
  if (line <= 0) return "";
  const char *start = tk_emu_text;
  for (int n = 1; n < line && start != nullptr; ++n) {
    start = std::strchr(start, '\n');
    if (start != nullptr) ++start;
  }
  if (start == nullptr) return text("; line %d", line);
  while (*start == ' ') ++start;
  const std::string shown(start, std::min(std::strcspn(start, "\n"), kLongestLine));
  return text("; line %d: `", line) + shown + "`";
}

uint32_t offset_of(const Worker &from, const void *place) {
  return place == nullptr ? 0 : static_cast<uint32_t>(reinterpret_cast<uintptr_t>(place) - from.image_base);
}

std::string earlier_text(uint32_t place) {
  if (place == 0) return "";
  return " (" + place_text(reinterpret_cast<const void *>(image().base + place)).erase(0, 2) + ")";
}

std::string place_text(const void *place) {
  if (place == nullptr) return "";
  // A return address belongs to the call in front of it.
  const uintptr_t offset = reinterpret_cast<uintptr_t>(place) - image().base - 1;
  return line_text(module_line(run_addr2line(image().path, offset)));
}

}  // namespace tk::emu
