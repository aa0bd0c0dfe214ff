// Shared parts of the fake CUDA driver.
#pragma once
#include <cuda.h>

#include "core/device.h"

#define PRESIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace presim::driver {

inline CUresult result(int status) { return CUresult(status); }
inline void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }
inline void** pointers(CUdeviceptr* out) { return reinterpret_cast<void**>(out); }

}  // namespace presim::driver
