// Memory, copies and fills by the driver's names.
#include "core/memory.h"

#include <cstring>

#include "core/capture.h"
#include "core/pools.h"
#include "core/transfer.h"
#include "driver.h"

using namespace presim;
using namespace presim::driver;

namespace {

int allocate(CUdeviceptr* out, size_t bytes, Space space) {
  if (bytes == 0) return kInvalidValue;
  if (int status = device_ready()) return status;
  if (int status = refuse_unsafe_call()) return status;
  return allocate_device(pointers(out), bytes, space);
}

// One result per attribute, written to `data` with the attribute's type.
int pointer_attribute(void* data, int attribute, CUdeviceptr address) {
  Range range;
  if (data == nullptr || !find_range(pointer(address), &range)) return kInvalidValue;
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(data) = range.on_host() ? CU_MEMORYTYPE_HOST : CU_MEMORYTYPE_DEVICE;
      return kSuccess;
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER: *static_cast<CUdeviceptr*>(data) = address; return kSuccess;
    case CU_POINTER_ATTRIBUTE_HOST_POINTER:
      if (!range.on_host() && range.space != Space::Managed) return kInvalidValue;
      *static_cast<CUdeviceptr*>(data) = address;
      return kSuccess;
    case CU_POINTER_ATTRIBUTE_BUFFER_ID: *static_cast<uint64_t*>(data) = range.id; return kSuccess;
    case CU_POINTER_ATTRIBUTE_IS_MANAGED: *static_cast<unsigned*>(data) = range.space == Space::Managed; return kSuccess;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL: *static_cast<int*>(data) = range.device; return kSuccess;
    case CU_POINTER_ATTRIBUTE_MAPPED: *static_cast<char*>(data) = 1; return kSuccess;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR: *static_cast<CUdeviceptr*>(data) = range.base; return kSuccess;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE: *static_cast<size_t*>(data) = range.bytes; return kSuccess;
    case CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE:
      *static_cast<char*>(data) = range.space == Space::Device;
      return kSuccess;
    case CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES: *static_cast<uint64_t*>(data) = 0; return kSuccess;
    case CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE:
      *static_cast<void**>(data) = range.space == Space::Pooled ? range.owner : nullptr;
      return kSuccess;
    default: unmodelled("cuPointerGetAttribute"); return kNotSupported;
  }
}

}  // namespace

PRESIM_EXPORT CUresult cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  if (int status = device_ready()) return result(status);
  device_memory_info(current_device(), free_bytes, total_bytes);
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuMemAlloc(CUdeviceptr* out, size_t bytes) { return result(allocate(out, bytes, Space::Device)); }
PRESIM_EXPORT CUresult cuMemAllocManaged(CUdeviceptr* out, size_t bytes, unsigned) {
  return result(allocate(out, bytes, Space::Managed));
}
PRESIM_EXPORT CUresult cuMemFree(CUdeviceptr address) {
  if (int status = refuse_unsafe_call()) return result(status);
  return result(free_pooled(pointer(address)) == kSuccess ? int(kSuccess) : free_device(pointer(address)));
}
PRESIM_EXPORT CUresult cuMemGetAddressRange(CUdeviceptr* base, size_t* bytes, CUdeviceptr address) {
  Range range;
  if (!find_range(pointer(address), &range)) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = range.base;
  if (bytes != nullptr) *bytes = range.bytes;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuMemHostAlloc(void** out, size_t bytes, unsigned flags) { return result(allocate_host(out, bytes, flags)); }
PRESIM_EXPORT CUresult cuMemAllocHost(void** out, size_t bytes) { return result(allocate_host(out, bytes, 0)); }
PRESIM_EXPORT CUresult cuMemFreeHost(void* address) { return result(free_host(address)); }
PRESIM_EXPORT CUresult cuMemHostRegister(void* address, size_t bytes, unsigned flags) {
  return result(register_host(address, bytes, flags));
}
PRESIM_EXPORT CUresult cuMemHostUnregister(void* address) { return result(unregister_host(address)); }
PRESIM_EXPORT CUresult cuMemHostGetDevicePointer(CUdeviceptr* out, void* host, unsigned) {
  Range range;
  if (out == nullptr || !find_range(host, &range) || !range.on_host()) return CUDA_ERROR_INVALID_VALUE;
  *out = CUdeviceptr(host);
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuPointerGetAttribute(void* data, CUpointer_attribute attribute, CUdeviceptr address) {
  return result(pointer_attribute(data, attribute, address));
}
PRESIM_EXPORT CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** data, CUdeviceptr address) {
  Range range;
  for (unsigned i = 0; i < count; ++i) {
    // Unlike the singular call, this one returns 0 for memory outside CUDA.
    if (pointer_attribute(data[i], attributes[i], address) != kSuccess) std::memset(data[i], 0, 4);
  }
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuPointerSetAttribute(const void*, CUpointer_attribute, CUdeviceptr) { return CUDA_SUCCESS; }

PRESIM_EXPORT CUresult cuMemAllocAsync(CUdeviceptr* out, size_t bytes, CUstream stream) {
  return result(allocate_async(pointers(out), bytes, nullptr, stream));
}
PRESIM_EXPORT CUresult cuMemAllocFromPoolAsync(CUdeviceptr* out, size_t bytes, CUmemoryPool pool, CUstream stream) {
  return result(allocate_async(pointers(out), bytes, pool, stream));
}
PRESIM_EXPORT CUresult cuMemFreeAsync(CUdeviceptr address, CUstream stream) { return result(free_async(pointer(address), stream)); }
PRESIM_EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t keep) { return result(trim_pool(pool, keep)); }
PRESIM_EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return result(get_pool_attribute(pool, attribute, value));
}
PRESIM_EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attribute, void* value) {
  return result(set_pool_attribute(pool, attribute, value));
}
