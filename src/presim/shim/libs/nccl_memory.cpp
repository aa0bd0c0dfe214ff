// NCCL: registered buffers, windows, its own allocations, and its version.
#include <dlfcn.h>

#include <cstdlib>

#include "libs/nccl.h"

namespace {
using namespace presim::libs;
using namespace presim::libs::nccl;

// 2.30.7, which PyTorch 2.14 requires, unless the launcher sets another one (PRESIM_NCCL_VERSION=22907).
int reported_version() {
  static const int reported = [] {
    const char* wanted = std::getenv("PRESIM_NCCL_VERSION");
    int number = wanted != nullptr ? std::atoi(wanted) : 0;
    return number >= 20000 ? number : 23007;
  }();
  return reported;
}
constexpr int kUnhandledCudaError = 1;

struct Window {
  void* address;
  size_t bytes;
};

// Uses the CUDA runtime of the process, so that the memory counts against the device's capacity.
template <class Function>
Function runtime(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_DEFAULT, name));
}

int attach(void* comm, void* address, size_t bytes, void** handle) {
  if (checked(comm) == nullptr || handle == nullptr) return kInvalidArgument;
  *handle = new Window{address, bytes};
  return kSuccess;
}

int detach(void* comm, void* handle) {
  if (checked(comm) == nullptr) return kInvalidArgument;
  delete static_cast<Window*>(handle);
  return kSuccess;
}

}  // namespace

PRESIM_EXPORT int ncclMemAlloc(void** address, size_t bytes) {
  static auto allocate = runtime<int (*)(void**, size_t)>("cudaMalloc");
  if (address == nullptr || allocate == nullptr) return kInvalidArgument;
  return allocate(address, bytes) == 0 ? int(kSuccess) : kUnhandledCudaError;
}
PRESIM_EXPORT int ncclMemFree(void* address) {
  static auto release = runtime<int (*)(void*)>("cudaFree");
  if (release == nullptr) return kInvalidArgument;
  return release(address) == 0 ? int(kSuccess) : kUnhandledCudaError;
}

PRESIM_EXPORT int ncclCommRegister(void* comm, void* address, size_t bytes, void** handle) {
  return attach(comm, address, bytes, handle);
}
PRESIM_EXPORT int ncclCommDeregister(void* comm, void* handle) { return detach(comm, handle); }
PRESIM_EXPORT int ncclCommWindowRegister(void* comm, void* address, size_t bytes, void** window, int) {
  return attach(comm, address, bytes, window);
}
PRESIM_EXPORT int ncclCommWindowDeregister(void* comm, void* window) { return detach(comm, window); }
PRESIM_EXPORT int ncclWinGetUserPtr(void* comm, void* window, void** address) {
  if (checked(comm) == nullptr || window == nullptr || address == nullptr) return kInvalidArgument;
  *address = static_cast<Window*>(window)->address;
  return kSuccess;
}

PRESIM_EXPORT int ncclCommMemStats(void* comm, int, uint64_t* value) {
  if (checked(comm) == nullptr || value == nullptr) return kInvalidArgument;
  *value = 0;
  return kSuccess;
}

PRESIM_EXPORT int ncclGetVersion(int* version) {
  if (version == nullptr) return kInvalidArgument;
  *version = reported_version();
  return kSuccess;
}

PRESIM_EXPORT const char* ncclGetErrorString(int result) {
  static constexpr const char* kTexts[] = {"no error",           "unhandled cuda error", "unhandled system error",
                                           "internal error",     "invalid argument",     "invalid usage",
                                           "remote process error", "operation in progress", "timeout"};
  return result >= 0 && result < 9 ? kTexts[result] : "unknown result code";
}
PRESIM_EXPORT const char* ncclGetLastError(void*) { return last_error().c_str(); }
