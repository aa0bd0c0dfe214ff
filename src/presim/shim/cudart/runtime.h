// Shared parts of the fake CUDA runtime.
#pragma once
#include <cuda_runtime_api.h>

#include "core/device.h"

#define PRESIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace presim::cudart {

// Every call returns through here: an error is kept until cudaGetLastError reads it.
inline thread_local int last_error = 0;

inline cudaError_t result(int status) {
  if (status != kSuccess && status != kNotReady) last_error = status;
  return cudaError_t(status);
}

}  // namespace presim::cudart
