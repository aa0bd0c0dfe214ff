// cuDNN: the handle and the library's version.
#include <cstdlib>

#include "libs/common.h"
#include "libs/cudnn_backend.h"

namespace {
using namespace presim::libs;
using namespace presim::libs::cudnn;

// PyTorch refuses a cuDNN older than the one it was built with, and chooses attention kernels by version. The launcher
// may set the version (PRESIM_CUDNN_VERSION=92400). The default is the one that the newest supported PyTorch (2.15)
// requires; PyTorch 2.14 is distributed with 9.24.0.
int version() {
  static const int reported = [] {
    const char* wanted = std::getenv("PRESIM_CUDNN_VERSION");
    int number = wanted != nullptr ? std::atoi(wanted) : 0;
    return number >= 90000 ? number : 92600;
  }();
  return reported;
}
}  // namespace

PRESIM_EXPORT size_t cudnnGetVersion() { return size_t(version()); }
PRESIM_EXPORT size_t cudnnGetMaxDeviceVersion() { return 1200; }
PRESIM_EXPORT size_t cudnnGetCudartVersion() { return 13000; }

PRESIM_EXPORT int cudnnGetProperty(int type, int* value) {
  if (value == nullptr || type < 0 || type > 2) return kBadParam;
  *value = type == 0 ? version() / 10000 : type == 1 ? version() / 100 % 100 : version() % 100;
  return kSuccess;
}

PRESIM_EXPORT const char* cudnnGetErrorString(int status) {
  switch (status) {
    case kSuccess: return "CUDNN_STATUS_SUCCESS";
    case kNotInitialized: return "CUDNN_STATUS_NOT_INITIALIZED";
    case kBadParam: return "CUDNN_STATUS_BAD_PARAM";
    case kNullPointer: return "CUDNN_STATUS_BAD_PARAM_NULL_POINTER";
    case kNotFinalized: return "CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED";
    case kNotSupported: return "CUDNN_STATUS_NOT_SUPPORTED";
    default: return "CUDNN_STATUS_INTERNAL_ERROR";
  }
}
PRESIM_EXPORT void cudnnGetLastErrorString(char* message, size_t bytes) {
  if (message != nullptr && bytes > 0) message[0] = '\0';
}

PRESIM_EXPORT int cudnnCreate(void** handle) { return create_handle(handle, kNullPointer); }
PRESIM_EXPORT int cudnnDestroy(void* handle) { return destroy_handle(handle, kNotInitialized); }
PRESIM_EXPORT int cudnnSetStream(void* handle, void* stream) { return set_stream(handle, stream, kNotInitialized); }
PRESIM_EXPORT int cudnnGetStream(void* handle, void** stream) { return get_stream(handle, stream, kNotInitialized); }

PRESIM_EXPORT int cudnnQueryRuntimeError(void*, int* status, int, void*) {
  if (status != nullptr) *status = kSuccess;
  return kSuccess;
}
PRESIM_EXPORT int cudnnSetCallback(unsigned, void*, void*) { return kSuccess; }

// All parts of the library have one version.
PRESIM_EXPORT int cudnnGraphVersionCheck() { return kSuccess; }
PRESIM_EXPORT int cudnnOpsVersionCheck() { return kSuccess; }
PRESIM_EXPORT int cudnnCnnVersionCheck() { return kSuccess; }
PRESIM_EXPORT int cudnnAdvVersionCheck() { return kSuccess; }
