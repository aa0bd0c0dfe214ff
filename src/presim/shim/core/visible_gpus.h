// The GPUs of the node that this process sees as its devices: all, or those in CUDA_VISIBLE_DEVICES, which is read until the
// first use of a device.
#pragma once
#include "recorder.h"

namespace presim {

// Number of the GPU in its node behind a device of this process, and back; -1: none.
PRESIM_API int gpu_of(int device);
int device_of_gpu(int gpu);
int visible_count();
int gpu_count();  // of the node: as described, or more where the script names GPUs of a larger node

}  // namespace presim
