// Functions by name. In headers of CUDA 13, a plain name means the newest version of a function.
#include <dlfcn.h>

#include <initializer_list>
#include <string>

#include "driver.h"

using namespace presim;
using namespace presim::driver;

namespace {

// Newer than CUDA 13.0 and with other arguments: the plain name means the older version.
bool added_later(const std::string& name) {
  for (const char* later : {"cuCtxGetDevice_v2", "cuCtxSynchronize_v2", "cuStreamGetCtx_v2"}) {
    if (name == later) return true;
  }
  return false;
}

void* find(const char* name) {
  static void* self = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  void* scope = self != nullptr ? self : RTLD_DEFAULT;
  for (const char* suffix : {"_v4", "_v3", "_v2", ""}) {
    std::string full = std::string(name) + suffix;
    if (added_later(full)) continue;
    if (void* found = dlsym(scope, full.c_str())) return found;
  }
  return nullptr;
}

}  // namespace

PRESIM_EXPORT CUresult cuGetProcAddress_v2(const char* name, void** out, int, cuuint64_t, CUdriverProcAddressQueryResult* found) {
  if (name == nullptr || out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = find(name);
  if (found != nullptr) *found = *out != nullptr ? CU_GET_PROC_ADDRESS_SUCCESS : CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
PRESIM_EXPORT CUresult cuGetProcAddress_v1(const char* name, void** out, int version, cuuint64_t flags)
    __asm__("cuGetProcAddress");
PRESIM_EXPORT CUresult cuGetProcAddress_v1(const char* name, void** out, int version, cuuint64_t flags) {
  return cuGetProcAddress_v2(name, out, version, flags, nullptr);
}
// A statically linked runtime requests these tables; there are none.
PRESIM_EXPORT CUresult cuGetExportTable(const void** out, const CUuuid*) {
  if (out != nullptr) *out = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}
