// CUPTI: there is no device to profile. Every entry returns an error, and torch.profiler profiles the CPU alone.
#include <cstdint>

#include "libs/common.h"

namespace {
constexpr int kNotInitialized = 15;
}

PRESIM_EXPORT int cuptiSubscribe(void**, void*, void*) { return kNotInitialized; }
PRESIM_EXPORT int cuptiSubscribe_v2(void**, void*, void*, void*) { return kNotInitialized; }
PRESIM_EXPORT int cuptiGetVersion(uint32_t* version) {
  if (version != nullptr) *version = 130000;
  return 0;
}
PRESIM_EXPORT int cuptiGetResultString(int, const char** text) {
  if (text != nullptr) *text = "CUPTI is not available on an emulated device";
  return 0;
}
PRESIM_EXPORT int cuptiGetCallbackName(int, uint32_t, const char** name) {
  if (name != nullptr) *name = "unknown";
  return 0;
}
PRESIM_EXPORT int cuptiGetTimestamp(uint64_t* time) {
  if (time != nullptr) *time = 0;
  return kNotInitialized;
}
