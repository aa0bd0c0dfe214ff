#include <cstring>

#include "core/attributes.h"
#include "core/config.h"
#include "core/pools.h"
#include "core/streams.h"
#include "core/visible_gpus.h"
#include "driver.h"

using namespace presim;
using namespace presim::driver;

namespace {

CUresult text(const char* (*of)(int), CUresult error, const char** out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = of(error);
  return *out != nullptr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

}  // namespace

PRESIM_EXPORT CUresult cuInit(unsigned) { return result(device_count() > 0 ? kSuccess : kNoDevice); }
PRESIM_EXPORT CUresult cuDriverGetVersion(int* version) {
  if (version == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *version = device_config().driver_version;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuGetErrorName(CUresult error, const char** out) { return text(driver_error_name, error, out); }
PRESIM_EXPORT CUresult cuGetErrorString(CUresult error, const char** out) { return text(error_sentence, error, out); }

PRESIM_EXPORT CUresult cuDeviceGetCount(int* count) {
  if (count == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *count = device_count();
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  if (device == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuDeviceGetName(char* out, int bytes, CUdevice device) {
  if (out == nullptr || bytes < 1) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  std::strncpy(out, device_config().name.c_str(), size_t(bytes) - 1);
  out[bytes - 1] = '\0';
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuDeviceGetUuid(CUuuid* out, CUdevice device) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  device_uuid(reinterpret_cast<unsigned char*>(out->bytes), gpu_of(device));
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuDeviceTotalMem(size_t* bytes, CUdevice device) {
  if (bytes == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *bytes = size_t(device_config().memory_bytes);
  return result(valid_device(device) ? kSuccess : kInvalidDevice);
}
PRESIM_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute number, CUdevice device) {
  return result(device_attribute(value, number, device));
}
PRESIM_EXPORT CUresult cuDeviceComputeCapability(int* major, int* minor, CUdevice) {
  if (major == nullptr || minor == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *major = device_config().compute_major;
  *minor = device_config().compute_minor;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuDeviceGetPCIBusId(char* out, int bytes, CUdevice device) {
  if (out == nullptr || bytes < 1 || !valid_device(device)) return CUDA_ERROR_INVALID_VALUE;
  std::strncpy(out, pci_bus_id(gpu_of(device)).c_str(), size_t(bytes) - 1);
  out[bytes - 1] = '\0';
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuDeviceGetByPCIBusId(CUdevice* device, const char* id) {
  int gpu = -1;
  if (device == nullptr || id == nullptr || !gpu_by_pci_bus_id(&gpu, id)) return result(kInvalidValue);
  *device = device_of_gpu(gpu);
  return result(*device >= 0 ? kSuccess : kInvalidValue);
}
PRESIM_EXPORT CUresult cuDeviceCanAccessPeer(int* out, CUdevice device, CUdevice peer) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = device != peer;
  return result(valid_device(device) && valid_device(peer) ? kSuccess : kInvalidDevice);
}
PRESIM_EXPORT CUresult cuDeviceGetP2PAttribute(int* value, CUdevice_P2PAttribute number, CUdevice, CUdevice) {
  if (value == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *value = number == CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED || number == CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool* out, CUdevice device) {
  if (out == nullptr || !valid_device(device)) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUmemoryPool>(default_pool(device));
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool* out, CUdevice device) {
  if (out == nullptr || !valid_device(device)) return CUDA_ERROR_INVALID_VALUE;
  *out = reinterpret_cast<CUmemoryPool>(current_pool(device));
  return CUDA_SUCCESS;
}

// The driver has no messages of its own.
PRESIM_EXPORT CUresult cuLogsRegisterCallback(CUlogsCallback, void*, CUlogsCallbackHandle* out) {
  if (out != nullptr) *out = nullptr;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuLogsUnregisterCallback(CUlogsCallbackHandle) { return CUDA_SUCCESS; }
