// Tracks the live blocks of the caching allocator, to detect copies beyond a block or into a freed one.
#pragma once
#include <cstddef>

#include "misuse.h"

namespace presim::hook {

void segment_begins(size_t address, size_t bytes);
void segment_ends(size_t address, size_t bytes);
void block_begins(size_t address, size_t bytes);
void block_ends(size_t address);
// Checks that a copy or fill stays within one block, and reports it otherwise. Memory outside PyTorch is not tracked.
void check_blocks(const Access& access);

}  // namespace presim::hook
