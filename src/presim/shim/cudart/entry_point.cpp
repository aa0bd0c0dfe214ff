// Driver functions by name, as PyTorch and others look them up through the runtime.
#include <dlfcn.h>

#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

namespace {

using Resolve = int (*)(const char*, void**, int, unsigned long long, int*);

int resolve(const char* symbol, void** out, unsigned version, unsigned long long flags, cudaDriverEntryPointQueryResult* found) {
  if (symbol == nullptr || out == nullptr) return kInvalidValue;
  static auto* driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  static auto ask = driver != nullptr ? reinterpret_cast<Resolve>(dlsym(driver, "cuGetProcAddress_v2")) : nullptr;
  *out = nullptr;
  int status = ask != nullptr ? ask(symbol, out, int(version), flags, nullptr) : int(kNotFound);
  if (found != nullptr) *found = status == kSuccess ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  // A missing name is not an error of the call if the caller requests the outcome.
  return found != nullptr && status == kNotFound ? int(kSuccess) : status;
}

}  // namespace

PRESIM_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** out, unsigned version,
                                                           unsigned long long flags, cudaDriverEntryPointQueryResult* found) {
  return result(resolve(symbol, out, version, flags, found));
}
PRESIM_EXPORT cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** out, unsigned long long flags,
                                                  cudaDriverEntryPointQueryResult* found) {
  return result(resolve(symbol, out, CUDART_VERSION, flags, found));
}
