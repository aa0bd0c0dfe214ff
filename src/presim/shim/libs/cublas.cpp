// cuBLAS: the handle and its settings. Products are in cublas_gemm.cpp, the other routines in stub_rules.txt.
#include "libs/common.h"

namespace {
using namespace presim::libs;
constexpr int kNotInitialized = 1, kInvalidValue = 7;
constexpr int kVersion = 130200;

int set(void* handle, int32_t Handle::* field, int value) {
  if (handle_of(handle) == nullptr) return kNotInitialized;
  handle_of(handle)->*field = value;
  return 0;
}

int get(void* handle, int32_t Handle::* field, int* value) {
  if (handle_of(handle) == nullptr) return kNotInitialized;
  if (value == nullptr) return kInvalidValue;
  *value = handle_of(handle)->*field;
  return 0;
}
}  // namespace

PRESIM_EXPORT int cublasCreate_v2(void** handle) { return create_handle(handle, kInvalidValue); }
PRESIM_EXPORT int cublasDestroy_v2(void* handle) { return destroy_handle(handle, kNotInitialized); }
PRESIM_EXPORT int cublasSetStream_v2(void* handle, void* stream) { return set_stream(handle, stream, kNotInitialized); }
PRESIM_EXPORT int cublasGetStream_v2(void* handle, void** stream) {
  return get_stream(handle, stream, kNotInitialized);
}
PRESIM_EXPORT int cublasSetPointerMode_v2(void* h, int mode) { return set(h, &Handle::pointer_mode, mode); }
PRESIM_EXPORT int cublasGetPointerMode_v2(void* h, int* mode) { return get(h, &Handle::pointer_mode, mode); }
PRESIM_EXPORT int cublasSetMathMode(void* h, int mode) { return set(h, &Handle::math_mode, mode); }
PRESIM_EXPORT int cublasGetMathMode(void* h, int* mode) { return get(h, &Handle::math_mode, mode); }
PRESIM_EXPORT int cublasSetAtomicsMode(void* h, int mode) { return set(h, &Handle::atomics_mode, mode); }
PRESIM_EXPORT int cublasGetAtomicsMode(void* h, int* mode) { return get(h, &Handle::atomics_mode, mode); }
PRESIM_EXPORT int cublasSetSmCountTarget(void* h, int count) { return set(h, &Handle::sm_target, count); }
PRESIM_EXPORT int cublasGetSmCountTarget(void* h, int* count) { return get(h, &Handle::sm_target, count); }

// The caller has allocated the memory, and it is counted there.
PRESIM_EXPORT int cublasSetWorkspace_v2(void* handle, void*, size_t) {
  return handle_of(handle) != nullptr ? 0 : kNotInitialized;
}

PRESIM_EXPORT int cublasGetVersion_v2(void*, int* version) {
  if (version == nullptr) return kInvalidValue;
  *version = kVersion;
  return 0;
}

PRESIM_EXPORT int cublasGetProperty(int type, int* value) {
  if (value == nullptr || type < 0 || type > 2) return kInvalidValue;
  *value = type == 0 ? kVersion / 10000 : type == 1 ? kVersion / 100 % 100 : kVersion % 100;
  return 0;
}

PRESIM_EXPORT size_t cublasGetCudartVersion() { return 13000; }

PRESIM_EXPORT const char* cublasGetStatusName(int status) {
  switch (status) {
    case 0: return "CUBLAS_STATUS_SUCCESS";
    case kNotInitialized: return "CUBLAS_STATUS_NOT_INITIALIZED";
    case kInvalidValue: return "CUBLAS_STATUS_INVALID_VALUE";
    default: return "CUBLAS_STATUS_INTERNAL_ERROR";
  }
}
PRESIM_EXPORT const char* cublasGetStatusString(int status) { return cublasGetStatusName(status); }
