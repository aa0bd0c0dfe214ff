// Devices, their properties, limits and peers.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "core/attributes.h"
#include "core/config.h"
#include "core/shared_devices.h"
#include "core/streams.h"
#include "core/visible_gpus.h"
#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

namespace {

constexpr size_t kLimits[] = {1024, 1 << 20, 8 << 20, 2, 2048, 128, 0};
std::atomic<bool> peers[kMaxDevices][kMaxDevices];
unsigned device_flags = 0;

int attribute(int number, int device) {
  int value = 0;
  device_attribute(&value, number, device);
  return value;
}

void set_sizes(cudaDeviceProp& p, int device) {
  const DeviceConfig& config = device_config();
  p.totalGlobalMem = size_t(config.memory_bytes);
  p.sharedMemPerBlock = 49152;
  p.sharedMemPerBlockOptin = size_t(config.shared_per_block_optin);
  p.sharedMemPerMultiprocessor = size_t(config.shared_per_sm);
  p.reservedSharedMemPerBlock = 1024;
  p.regsPerBlock = 65536;
  p.regsPerMultiprocessor = config.registers_per_sm;
  p.warpSize = 32;
  p.memPitch = 2147483647;
  p.totalConstMem = 65536;
  p.l2CacheSize = int(config.l2_bytes);
  p.persistingL2CacheMaxSize = attribute(108, device);
  p.accessPolicyMaxWindowSize = attribute(109, device);
  p.memoryBusWidth = config.memory_bus_bits;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = config.threads_per_sm;
  p.maxBlocksPerMultiProcessor = attribute(106, device);
  p.multiProcessorCount = config.sm_count;
  const int threads[] = {1024, 1024, 64}, grid[] = {2147483647, 65535, 65535};
  std::copy(threads, threads + 3, p.maxThreadsDim);
  std::copy(grid, grid + 3, p.maxGridSize);
}

void set_abilities(cudaDeviceProp& p, int device) {
  const DeviceConfig& config = device_config();
  p.major = config.compute_major;
  p.minor = config.compute_minor;
  p.canMapHostMemory = p.concurrentKernels = p.ECCEnabled = p.unifiedAddressing = 1;
  p.streamPrioritiesSupported = p.globalL1CacheSupported = p.localL1CacheSupported = 1;
  p.managedMemory = p.concurrentManagedAccess = p.computePreemptionSupported = 1;
  p.canUseHostPointerForRegisteredMem = p.cooperativeLaunch = p.hostRegisterSupported = 1;
  p.memoryPoolsSupported = p.gpuDirectRDMASupported = p.ipcEventSupported = 1;
  p.asyncEngineCount = 3;
  p.clusterLaunch = attribute(120, device);
  p.pciBusID = attribute(33, device);
  p.deviceNumaId = -1;
  p.textureAlignment = p.surfaceAlignment = 512;
  p.texturePitchAlignment = 32;
}

int peer_call(int peer, bool enable, int already) {
  if (int status = device_ready()) return status;
  if (!valid_device(peer) || peer == current_device()) return kInvalidDevice;
  return peers[current_device()][peer].exchange(enable) == enable ? already : int(kSuccess);
}

}  // namespace

PRESIM_EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  if (count == nullptr) return result(kInvalidValue);
  *count = device_count();
  return result(*count > 0 ? kSuccess : kNoDevice);
}
PRESIM_EXPORT cudaError_t cudaSetDevice(int device) {
  if (int status = set_current_device(device)) return result(status);
  if (int status = device_ready()) return result(status);
  use_gpu(gpu_of(device));  // from CUDA 12 on, it creates the device's context
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaGetDevice(int* device) {
  if (device == nullptr) return result(kInvalidValue);
  if (device_count() == 0) return result(kNoDevice);
  *device = current_device();
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaInitDevice(int device, unsigned, unsigned) {
  return result(valid_device(device) ? device_ready() : int(kInvalidDevice));
}
PRESIM_EXPORT cudaError_t cudaDeviceSynchronize() { return result(synchronize_device()); }
// The context ends with the process; its memory stays until then.
PRESIM_EXPORT cudaError_t cudaDeviceReset() { return result(device_ready()); }

PRESIM_EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* out, int device) {
  if (out == nullptr) return result(kInvalidValue);
  if (!valid_device(device)) return result(device_count() == 0 ? kNoDevice : kInvalidDevice);
  std::memset(out, 0, sizeof *out);
  std::strncpy(out->name, device_config().name.c_str(), sizeof out->name - 1);
  device_uuid(reinterpret_cast<unsigned char*>(out->uuid.bytes), gpu_of(device));
  set_sizes(*out, device);
  set_abilities(*out, device);
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr number, int device) {
  return result(device_attribute(value, number, device));
}
PRESIM_EXPORT cudaError_t cudaChooseDevice(int* device, const cudaDeviceProp*) {
  if (device == nullptr) return result(kInvalidValue);
  *device = 0;
  return result(device_count() > 0 ? kSuccess : kNoDevice);
}

PRESIM_EXPORT cudaError_t cudaDeviceGetPCIBusId(char* out, int bytes, int device) {
  if (out == nullptr || bytes < 1) return result(kInvalidValue);
  if (!valid_device(device)) return result(kInvalidDevice);
  std::strncpy(out, pci_bus_id(gpu_of(device)).c_str(), size_t(bytes) - 1);
  out[bytes - 1] = '\0';
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaDeviceGetByPCIBusId(int* device, const char* id) {
  if (device == nullptr || id == nullptr) return result(kInvalidValue);
  int gpu = -1;
  *device = gpu_by_pci_bus_id(&gpu, id) ? device_of_gpu(gpu) : -1;
  return result(*device >= 0 ? kSuccess : kInvalidDevice);
}

PRESIM_EXPORT cudaError_t cudaDeviceCanAccessPeer(int* out, int device, int peer) {
  if (out == nullptr) return result(kInvalidValue);
  if (!valid_device(device) || !valid_device(peer)) return result(kInvalidDevice);
  *out = device != peer;
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return result(peer_call(peer, true, kPeerAccessAlreadyEnabled));
}
PRESIM_EXPORT cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  return result(peer_call(peer, false, kPeerAccessNotEnabled));
}
PRESIM_EXPORT cudaError_t cudaDeviceGetP2PAttribute(int* value, cudaDeviceP2PAttr number, int device, int peer) {
  if (value == nullptr || device == peer) return result(kInvalidValue);
  if (!valid_device(device) || !valid_device(peer)) return result(kInvalidDevice);
  *value = number == cudaDevP2PAttrPerformanceRank ? 0 : number != cudaDevP2PAttrCudaArrayAccessSupported;
  return cudaSuccess;
}

PRESIM_EXPORT cudaError_t cudaDeviceGetLimit(size_t* value, cudaLimit limit) {
  if (value == nullptr) return result(kInvalidValue);
  if (unsigned(limit) >= sizeof kLimits / sizeof kLimits[0]) return result(cudaErrorUnsupportedLimit);
  *value = kLimits[limit];
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaDeviceSetLimit(cudaLimit, size_t) { return result(device_ready()); }
PRESIM_EXPORT cudaError_t cudaDeviceGetCacheConfig(cudaFuncCache* config) {
  if (config != nullptr) *config = cudaFuncCachePreferNone;
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaDeviceSetCacheConfig(cudaFuncCache) { return cudaSuccess; }
PRESIM_EXPORT cudaError_t cudaCtxResetPersistingL2Cache() { return cudaSuccess; }
PRESIM_EXPORT cudaError_t cudaSetDeviceFlags(unsigned flags) {
  device_flags = flags;
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaGetDeviceFlags(unsigned* flags) {
  if (flags == nullptr) return result(kInvalidValue);
  *flags = device_flags;
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaSetValidDevices(int*, int) { return cudaSuccess; }
PRESIM_EXPORT cudaError_t cudaProfilerStart() { return cudaSuccess; }
PRESIM_EXPORT cudaError_t cudaProfilerStop() { return cudaSuccess; }
PRESIM_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  if (version == nullptr) return result(kInvalidValue);
  *version = CUDART_VERSION;
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  if (version == nullptr) return result(kInvalidValue);
  *version = device_count() > 0 ? device_config().driver_version : 0;
  return cudaSuccess;
}
