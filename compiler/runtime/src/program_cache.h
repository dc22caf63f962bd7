// Programs that a device's driver compiled, kept on disk: the next load takes milliseconds.
//
// The same directory and layout as compiler/core/cache.py: programs/<2 digits of key>/<key>/<SHA-256 of the
// content>. A file whose content does not have the digest in its name counts as absent and is removed. Files
// appear by renaming; processes do not disturb each other. Whatever fails, the program is compiled again.
#ifndef TK_PROGRAM_CACHE_H
#define TK_PROGRAM_CACHE_H

#include <cstddef>
#include <string>
#include <vector>

namespace tk {

// SHA-256 in hexadecimal digits (FIPS 180-4).
std::string sha256(const void *data, size_t bytes);

// A key from parts, each preceded by its length.
std::string program_key(const std::vector<std::string> &parts);

// False where there is none.
bool find_program(const std::string &key, std::string *content);

void keep_program(const std::string &key, const std::string &content);

}  // namespace tk

#endif
