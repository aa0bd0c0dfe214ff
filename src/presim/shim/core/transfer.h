// Copies and fills. Small ones are done, so that programs read back correct values.
#pragma once
#include <cstddef>

#include "device.h"

namespace presim {

// As cudaMemcpyKind.
enum class Direction : int { HostToHost = 0, HostToDevice = 1, DeviceToHost = 2, DeviceToDevice = 3, Default = 4 };

// Larger transfers are logged and not done. Their destination reads as zero afterwards: old values would be wrong
// without a sign of it, and zeros take no memory.
constexpr size_t kRealBytes = 65536;

// `wait`: the call returns when the copy is done (cudaMemcpy as opposed to cudaMemcpyAsync).
int copy(void* to, const void* from, size_t bytes, int direction, void* stream, bool wait);
// From one GPU's memory to another's over the link between them, or within one GPU.
int copy_between(void* to, int to_device, const void* from, int from_device, size_t bytes, void* stream, bool wait);
int copy_2d(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height, int direction,
            void* stream, bool wait);
// `width` bytes of `value` (1, 2 or 4), `count` times.
int fill(void* to, unsigned value, unsigned width, size_t count, void* stream, bool wait);
int fill_2d(void* to, size_t pitch, unsigned value, unsigned width, size_t count, size_t height, void* stream, bool wait);

}  // namespace presim
