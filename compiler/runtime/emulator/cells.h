// What is known of a block's shared memory, by address.
#ifndef TK_EMULATOR_CELLS_H
#define TK_EMULATOR_CELLS_H

#include <algorithm>

#include "emulator.h"

namespace tk::emu {

inline Cell &part(const Worker &from, Cell *word, uintptr_t number) {
  return number == 0 ? *word : from.parts[3 * (word - from.cells) + static_cast<ptrdiff_t>(number) - 1];
}

// Forgets what was known of a word in earlier blocks.
inline void renew(const Worker &from, Cell *word, bool split) {
  if (word->block == from.block_serial && word->split == split) return;
  if (word->block != from.block_serial) {
    word[0] = Cell();
    word[0].block = from.block_serial;
    if (split)
      for (uintptr_t i = 1; i < 4; ++i) part(from, word, i) = Cell();
    word[0].split = split;
  } else if (split && !word[0].split) {
    for (uintptr_t i = 1; i < 4; ++i) part(from, word, i) = word[0];
    word[0].split = true;
  }
}

// Calls fn(cell, address) for what is known of some bytes: of whole words where they were only used so.
template <class F> void each_cell(Worker &from, uintptr_t address, size_t bytes, F fn) {
  const uintptr_t end = address + bytes;
  while (address < end) {
    Cell *word = from.cells + (address - from.shared_low) / 4;
    const bool whole = address % 4 == 0 && end - address >= 4;
    renew(from, word, !whole);
    if (whole && !word->split) {
      fn(*word, address);
      address += 4;
      continue;
    }
    const uintptr_t stop = std::min(end, (address & ~static_cast<uintptr_t>(3)) + 4);
    for (; address < stop; ++address) fn(part(from, word, address % 4), address);
  }
}

// Whether they are of a shared array; `address` as the block has it that runs.
inline bool in_array(const Worker &from, uintptr_t address, size_t bytes) {
  const uintptr_t offset = address - from.shared_low;
  for (const SharedArray *array : from.launch.arrays)
    if (offset >= array->offset && offset + bytes <= array->offset + static_cast<uintptr_t>(array->bytes)) return true;
  return false;
}

}  // namespace tk::emu

#endif
