// What CUDA would punish on a GPU: told to whoever listens, with the line of the script where Python is running.
#pragma once
#include <cstddef>
#include <string>

#include "recorder.h"

namespace presim {

using OnMisuse = void (*)(const char* text);
// Asked about device memory that a copy or fill is about to read or write.
using BlockCheck = void (*)(const void* address, size_t bytes, bool writes);

PRESIM_API void listen_to_misuse(OnMisuse listener);
PRESIM_API void report_misuse(const std::string& text);
PRESIM_API void set_block_check(BlockCheck check);
void check_block(const void* address, size_t bytes, bool writes);

}  // namespace presim
