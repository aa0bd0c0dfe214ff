// Which blocks of the caching allocator live, so that a copy beyond one, or into one that was freed, is noticed.
#pragma once
#include <cstddef>

#include "misuse.h"

namespace presim::hook {

void segment_begins(size_t address, size_t bytes);
void segment_ends(size_t address, size_t bytes);
void block_begins(size_t address, size_t bytes);
void block_ends(size_t address);
// A copy or fill of device memory: reported unless it stays within one block. Memory of others is not known here.
void check_blocks(const Access& access);

}  // namespace presim::hook
