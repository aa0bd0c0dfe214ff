// cuRAND: generators have a stream; generation is device work by name (stub_rules.txt).
#include "libs/common.h"

namespace {
using namespace presim::libs;
constexpr int kNotInitialized = 101, kOutOfRange = 104;
}  // namespace

PRESIM_EXPORT int curandCreateGenerator(void** generator, int) { return create_handle(generator, kOutOfRange); }
PRESIM_EXPORT int curandDestroyGenerator(void* generator) { return destroy_handle(generator, kNotInitialized); }
PRESIM_EXPORT int curandSetStream(void* generator, void* stream) {
  return set_stream(generator, stream, kNotInitialized);
}
PRESIM_EXPORT int curandGetVersion(int* version) {
  if (version == nullptr) return kOutOfRange;
  *version = 10400;
  return 0;
}
