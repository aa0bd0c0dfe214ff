// What CUDA would punish on a GPU: told to whoever listens, with the line of the script where Python is running.
#pragma once
#include <cstddef>
#include <string>

#include "recorder.h"

namespace presim {

using OnMisuse = void (*)(const char* text);

// A copy or fill that is about to read or write.
struct Access {
  const char* what;  // "copy", "fill"
  const void* address;
  size_t bytes;
  bool writes;
};
PRESIM_API std::string in_words(const Access& access);  // "a copy of 8 bytes writes"
PRESIM_API std::string of_bytes(size_t bytes);

// Asked about device memory that belongs to an allocation.
using BlockCheck = void (*)(const Access&);

PRESIM_API void listen_to_misuse(OnMisuse listener);
PRESIM_API void report_misuse(const std::string& text);
PRESIM_API void set_block_check(BlockCheck check);
// Reports an access of device memory that leaves its allocation, or a block of the framework's within it. False where
// CUDA refuses it: the end of an allocation is checked to the byte, where CUDA may look at whole pages.
bool check_access(const Access& access);
// The address is none of the device's, or no longer.
void report_not_on_device(const Access& access);

}  // namespace presim
