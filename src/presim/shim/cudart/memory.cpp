// Device, managed and pinned memory.
#include "core/memory.h"

#include <cstring>

#include "core/capture.h"
#include "core/pools.h"
#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

namespace {

int allocate(void** address, size_t bytes, Space space) {
  if (int status = device_ready()) return status;
  if (int status = refuse_unsafe_call()) return status;
  return allocate_device(address, bytes, space);
}

int pitched(void** address, size_t* pitch, size_t width, size_t rows) {
  constexpr size_t kPitch = 512;
  if (pitch == nullptr) return kInvalidValue;
  *pitch = (width + kPitch - 1) / kPitch * kPitch;
  return allocate(address, *pitch * rows, Space::Device);
}

cudaMemoryType type_of(const Range& range) {
  if (range.space == Space::Managed) return cudaMemoryTypeManaged;
  return range.on_host() ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
}

}  // namespace

PRESIM_EXPORT cudaError_t cudaMalloc(void** address, size_t bytes) { return result(allocate(address, bytes, Space::Device)); }
PRESIM_EXPORT cudaError_t cudaMallocManaged(void** address, size_t bytes, unsigned) {
  return result(bytes == 0 ? int(kInvalidValue) : allocate(address, bytes, Space::Managed));
}

PRESIM_EXPORT cudaError_t cudaFree(void* address) {
  if (int status = device_ready()) return result(status);
  if (address == nullptr) return cudaSuccess;
  if (int status = refuse_unsafe_call()) return result(status);
  return result(free_pooled(address) == kSuccess ? int(kSuccess) : free_device(address));
}

PRESIM_EXPORT cudaError_t cudaMallocPitch(void** address, size_t* pitch, size_t width, size_t height) {
  return result(pitched(address, pitch, width, height));
}

PRESIM_EXPORT cudaError_t cudaMalloc3D(cudaPitchedPtr* out, cudaExtent extent) {
  if (out == nullptr) return result(kInvalidValue);
  out->xsize = extent.width;
  out->ysize = extent.height;
  return result(pitched(&out->ptr, &out->pitch, extent.width, extent.height * extent.depth));
}

PRESIM_EXPORT cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (int status = device_ready()) return result(status);
  device_memory_info(current_device(), free_bytes, total_bytes);
  return cudaSuccess;
}

PRESIM_EXPORT cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned flags) {
  if (int status = device_ready()) return result(status);
  return result(allocate_host(address, bytes, flags));
}
PRESIM_EXPORT cudaError_t cudaMallocHost(void** address, size_t bytes) { return cudaHostAlloc(address, bytes, 0); }
PRESIM_EXPORT cudaError_t cudaFreeHost(void* address) { return result(free_host(address)); }

PRESIM_EXPORT cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned flags) {
  if (int status = device_ready()) return result(status);
  return result(register_host(address, bytes, flags));
}
PRESIM_EXPORT cudaError_t cudaHostUnregister(void* address) { return result(unregister_host(address)); }

PRESIM_EXPORT cudaError_t cudaHostGetDevicePointer(void** device_address, void* host, unsigned) {
  Range range;
  if (device_address == nullptr || !find_range(host, &range) || !range.on_host()) return result(kInvalidValue);
  *device_address = host;
  return cudaSuccess;
}

PRESIM_EXPORT cudaError_t cudaHostGetFlags(unsigned* flags, void* host) {
  Range range;
  if (flags == nullptr || !find_range(host, &range) || !range.on_host()) return result(kInvalidValue);
  *flags = range.flags;
  return cudaSuccess;
}

PRESIM_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* out, const void* address) {
  if (out == nullptr) return result(kInvalidValue);
  if (int status = device_ready()) return result(status);
  std::memset(out, 0, sizeof *out);
  Range range;
  if (!find_range(address, &range)) {
    out->type = cudaMemoryTypeUnregistered;
    out->device = -2;  // cudaInvalidDeviceId
    out->hostPointer = const_cast<void*>(address);
    return cudaSuccess;
  }
  out->type = type_of(range);
  out->device = range.device;
  out->devicePointer = const_cast<void*>(address);
  if (out->type != cudaMemoryTypeDevice) out->hostPointer = const_cast<void*>(address);
  return cudaSuccess;
}

PRESIM_EXPORT cudaError_t cudaMemPrefetchAsync(const void* address, size_t bytes, cudaMemLocation, unsigned, cudaStream_t) {
  return result(covered(address, bytes) ? kSuccess : kInvalidValue);
}
PRESIM_EXPORT cudaError_t cudaMemAdvise(const void* address, size_t bytes, cudaMemoryAdvise, cudaMemLocation) {
  return result(covered(address, bytes) ? kSuccess : kInvalidValue);
}
