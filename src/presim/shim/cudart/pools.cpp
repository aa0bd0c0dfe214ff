// Stream-ordered allocation.
#include "core/pools.h"

#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

namespace {

template <class Find>
cudaError_t give_pool(cudaMemPool_t* out, int device, Find find) {
  if (int status = device_ready()) return result(status);
  if (out == nullptr) return result(kInvalidValue);
  if (!valid_device(device)) return result(kInvalidDevice);
  *out = reinterpret_cast<cudaMemPool_t>(find(device));
  return cudaSuccess;
}

}  // namespace

PRESIM_EXPORT cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* out, int device) {
  return give_pool(out, device, default_pool);
}
PRESIM_EXPORT cudaError_t cudaDeviceGetMemPool(cudaMemPool_t* out, int device) {
  return give_pool(out, device, current_pool);
}
PRESIM_EXPORT cudaError_t cudaDeviceSetMemPool(int device, cudaMemPool_t pool) {
  return result(set_current_pool(device, pool));
}
PRESIM_EXPORT cudaError_t cudaMemPoolCreate(cudaMemPool_t* out, const cudaMemPoolProps* properties) {
  if (int status = device_ready()) return result(status);
  if (properties == nullptr) return result(kInvalidValue);
  return result(create_pool(reinterpret_cast<Pool**>(out), properties->location.id));
}
PRESIM_EXPORT cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) { return result(destroy_pool(pool)); }
PRESIM_EXPORT cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t keep) { return result(trim_pool(pool, keep)); }
PRESIM_EXPORT cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return result(get_pool_attribute(pool, attribute, value));
}
PRESIM_EXPORT cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute, void* value) {
  return result(set_pool_attribute(pool, attribute, value));
}
PRESIM_EXPORT cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }
PRESIM_EXPORT cudaError_t cudaMemPoolGetAccess(cudaMemAccessFlags* flags, cudaMemPool_t, cudaMemLocation*) {
  if (flags == nullptr) return result(kInvalidValue);
  *flags = cudaMemAccessFlagsProtReadWrite;
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t stream) {
  return result(allocate_async(address, bytes, nullptr, stream));
}
PRESIM_EXPORT cudaError_t cudaMallocFromPoolAsync(void** address, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return result(allocate_async(address, bytes, pool, stream));
}
PRESIM_EXPORT cudaError_t cudaFreeAsync(void* address, cudaStream_t stream) { return result(free_async(address, stream)); }
