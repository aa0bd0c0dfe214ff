// Errors that would crash or corrupt a program on a GPU. They are reported with the current line of the Python script.
#pragma once
#include <cstddef>
#include <string>

#include "recorder.h"

namespace presim {

using OnMisuse = void (*)(const char* text);

// A copy or fill about to read or write.
struct Access {
  const char* what;  // "copy", "fill"
  const void* address;
  size_t bytes;
  bool writes;
};
PRESIM_API std::string in_words(const Access& access);  // "a copy of 8 bytes writes"
PRESIM_API std::string of_bytes(size_t bytes);

// A hook for device memory within an allocation.
using BlockCheck = void (*)(const Access&);

PRESIM_API void listen_to_misuse(OnMisuse listener);
PRESIM_API void report_misuse(const std::string& text);
PRESIM_API void set_block_check(BlockCheck check);
// Reports an access that leaves its allocation, or a block of the framework within it. False if CUDA refuses it. The
// end of an allocation is checked to the byte, while CUDA may check whole pages.
bool check_access(const Access& access);
// The address does not belong to the device, or no longer.
void report_not_on_device(const Access& access);

}  // namespace presim
