// cuSOLVER: handles. Factorisations and solvers are device work by name (stub_rules.txt), with info = 0: they succeed.
#include "libs/common.h"

namespace {
using namespace presim::libs;
constexpr int kNotInitialized = 1, kInvalidValue = 3;
}  // namespace

#define HANDLE_ENTRIES(Part)                                                                                          \
  PRESIM_EXPORT int cusolver##Part##Create(void** handle) { return create_handle(handle, kInvalidValue); }            \
  PRESIM_EXPORT int cusolver##Part##Destroy(void* handle) { return destroy_handle(handle, kNotInitialized); }         \
  PRESIM_EXPORT int cusolver##Part##SetStream(void* h, void* stream) { return set_stream(h, stream, kNotInitialized); } \
  PRESIM_EXPORT int cusolver##Part##GetStream(void* h, void** stream) { return get_stream(h, stream, kNotInitialized); }
HANDLE_ENTRIES(Dn)
HANDLE_ENTRIES(Sp)

PRESIM_EXPORT int cusolverGetVersion(int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = 12000;
  return 0;
}
PRESIM_EXPORT int cusolverGetProperty(int type, int* value) {
  if (value == nullptr) return kInvalidValue;
  *value = type == 0 ? 12 : 0;
  return 0;
}
