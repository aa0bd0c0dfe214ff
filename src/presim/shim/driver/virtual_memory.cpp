#include "core/virtual_memory.h"

#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "driver.h"

using namespace presim;
using namespace presim::driver;

namespace {

bool on_host(const CUmemAllocationProp& properties) { return properties.location.type != CU_MEM_LOCATION_TYPE_DEVICE; }

// A shared handle is a file that holds the size: another process creates memory of that size with its own content.
int export_size(int* file, size_t bytes) {
  *file = memfd_create("presim-memory", MFD_CLOEXEC);
  return *file >= 0 && write(*file, &bytes, sizeof bytes) == sizeof bytes ? kSuccess : kNotSupported;
}

}  // namespace

PRESIM_EXPORT CUresult cuMemAddressReserve(CUdeviceptr* out, size_t bytes, size_t alignment, CUdeviceptr, unsigned long long) {
  return result(reserve_virtual(pointers(out), bytes, alignment));
}
PRESIM_EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t bytes) {
  return result(free_virtual(pointer(address), bytes));
}
PRESIM_EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle* out, size_t bytes, const CUmemAllocationProp* properties,
                                   unsigned long long) {
  if (out == nullptr || properties == nullptr) return CUDA_ERROR_INVALID_VALUE;
  Physical* made = nullptr;
  int status = create_physical(&made, bytes, properties->location.id, on_host(*properties));
  *out = reinterpret_cast<CUmemGenericAllocationHandle>(made);
  return result(status);
}
PRESIM_EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle) { return result(release_physical(pointer(handle))); }
PRESIM_EXPORT CUresult cuMemMap(CUdeviceptr address, size_t bytes, size_t, CUmemGenericAllocationHandle handle,
                                unsigned long long) {
  return result(map_virtual(pointer(address), bytes, pointer(handle)));
}
PRESIM_EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t bytes) { return result(unmap_virtual(pointer(address), bytes)); }
PRESIM_EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t bytes, const CUmemAccessDesc*, size_t) {
  return result(check_mapped(pointer(address), bytes));
}
PRESIM_EXPORT CUresult cuMemGetAccess(unsigned long long* flags, const CUmemLocation*, CUdeviceptr address) {
  if (flags == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  return result(check_mapped(pointer(address), 1));
}
PRESIM_EXPORT CUresult cuMemGetAllocationGranularity(size_t* out, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = kGranularity;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle* out, void* address) {
  return result(retain_physical_at(reinterpret_cast<Physical**>(out), address));
}
PRESIM_EXPORT CUresult cuMemGetAllocationPropertiesFromHandle(CUmemAllocationProp* out, CUmemGenericAllocationHandle handle) {
  int device = 0;
  bool host = false;
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (int status = physical_device(pointer(handle), &device, &host)) return result(status);
  std::memset(out, 0, sizeof *out);
  out->type = CU_MEM_ALLOCATION_TYPE_PINNED;
  out->location = {host ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE, device};
  out->requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuMemExportToShareableHandle(void* out, CUmemGenericAllocationHandle handle,
                                                    CUmemAllocationHandleType type, unsigned long long) {
  size_t bytes = physical_bytes(pointer(handle));
  if (out == nullptr || bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  return result(export_size(static_cast<int*>(out), bytes));
}
PRESIM_EXPORT CUresult cuMemImportFromShareableHandle(CUmemGenericAllocationHandle* out, void* os_handle,
                                                      CUmemAllocationHandleType type) {
  if (type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return CUDA_ERROR_NOT_SUPPORTED;
  size_t bytes = 0;
  int file = int(reinterpret_cast<intptr_t>(os_handle));
  if (out == nullptr || pread(file, &bytes, sizeof bytes, 0) != sizeof bytes) return CUDA_ERROR_INVALID_VALUE;
  // Another process's memory takes no capacity of this one, like host memory.
  Physical* made = nullptr;
  int status = create_physical(&made, bytes, current_device(), true);
  *out = reinterpret_cast<CUmemGenericAllocationHandle>(made);
  return result(status);
}
