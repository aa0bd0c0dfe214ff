// Kernel launches of all kinds, and queries about kernels.
#include <cstring>

#include "architectures.h"
#include "core/capture.h"
#include "core/config.h"
#include "core/enqueue.h"
#include "core/kernels.h"
#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

namespace {

struct Configuration {
  dim3 grid, block;
  size_t shared;
  void* stream;
};

// <<<...>>> pushes and the kernel's generated stub pops; only arguments are evaluated in between.
constexpr int kDeepest = 16;
thread_local Configuration configurations[kDeepest];
thread_local int depth = 0;

cudaError_t launch(const void* function, dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
  return result(launch_kernel(function, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared, stream));
}

int describe(cudaFuncAttributes* out, const void* function) {
  if (int status = device_ready()) return status;
  Kernel* kernel = find_kernel(function);
  if (out == nullptr) return kInvalidValue;
  if (kernel == nullptr) return kInvalidDeviceFunction;
  const DeviceConfig& device = device_config();
  std::memset(out, 0, sizeof *out);
  out->maxThreadsPerBlock = 1024;
  out->numRegs = kernel->registers;
  int capability = device.compute_major * 10 + device.compute_minor;
  out->ptxVersion = out->binaryVersion = architecture_for(kernel->image, capability);
  out->maxDynamicSharedSizeBytes = kernel->dynamic_shared;
  out->preferredShmemCarveout = kernel->carveout;
  return kSuccess;
}

int set_attribute(const void* function, int attribute, int value) {
  if (int status = device_ready()) return status;
  Kernel* kernel = find_kernel(function);
  if (kernel == nullptr) return kInvalidDeviceFunction;
  if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize) {
    if (value < 0 || value > device_config().shared_per_block_optin) return kInvalidValue;
    kernel->dynamic_shared = value;
  }
  if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) kernel->carveout = value;
  return kSuccess;
}

int occupancy(int* blocks, const void* function, int block_size, size_t shared) {
  if (int status = device_ready()) return status;
  Kernel* kernel = find_kernel(function);
  if (blocks == nullptr) return kInvalidValue;
  if (kernel == nullptr) return kInvalidDeviceFunction;
  *blocks = blocks_per_sm(*kernel, block_size, shared);
  return kSuccess;
}

template <class Handle>
cudaError_t handle_of(Handle* out, const void* function) {
  Kernel* kernel = find_kernel(function);
  if (out == nullptr) return result(kInvalidValue);
  if (kernel == nullptr) return result(kInvalidDeviceFunction);
  *out = reinterpret_cast<Handle>(kernel);
  return cudaSuccess;
}

}  // namespace

PRESIM_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, CUstream_st* stream) {
  if (depth == kDeepest) return 1;
  configurations[depth++] = {grid, block, shared, stream};
  return 0;
}

PRESIM_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  if (depth == 0) return result(cudaErrorMissingConfiguration);
  const Configuration& top = configurations[--depth];
  *grid = top.grid;
  *block = top.block;
  *shared = top.shared;
  *static_cast<void**>(stream) = top.stream;
  return cudaSuccess;
}

PRESIM_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* out, const void* function) { return handle_of(out, function); }
PRESIM_EXPORT cudaError_t cudaGetKernel(cudaKernel_t* out, const void* function) { return handle_of(out, function); }
PRESIM_EXPORT cudaError_t cudaGetFuncBySymbol(cudaFunction_t* out, const void* function) { return handle_of(out, function); }

PRESIM_EXPORT cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void**, size_t shared,
                                           cudaStream_t stream) {
  return launch(function, grid, block, shared, stream);
}
PRESIM_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t shared,
                                             cudaStream_t stream) {
  return launch(kernel, grid, block, shared, stream);
}
// With a default stream per thread, a null stream means that one.
PRESIM_EXPORT cudaError_t __cudaLaunchKernel_ptsz(cudaKernel_t kernel, dim3 grid, dim3 block, void**, size_t shared,
                                                  cudaStream_t stream) {
  return launch(kernel, grid, block, shared, stream != nullptr ? stream : cudaStreamPerThread);
}
PRESIM_EXPORT cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3 grid, dim3 block, void**, size_t shared,
                                                      cudaStream_t stream) {
  return launch(function, grid, block, shared, stream);
}
PRESIM_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void**) {
  if (config == nullptr) return result(kInvalidValue);
  return launch(function, config->gridDim, config->blockDim, config->dynamicSmemBytes, config->stream);
}

PRESIM_EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* out, const void* function) {
  return result(describe(out, function));
}
PRESIM_EXPORT cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  return result(set_attribute(function, attribute, value));
}
PRESIM_EXPORT cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t kernel, cudaFuncAttribute attribute, int value, int) {
  return result(set_attribute(kernel, attribute, value));
}
PRESIM_EXPORT cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
PRESIM_EXPORT cudaError_t cudaFuncGetName(const char** name, const void* function) {
  Kernel* kernel = find_kernel(function);
  if (name == nullptr || kernel == nullptr) return result(name == nullptr ? kInvalidValue : kInvalidDeviceFunction);
  *name = kernel->name;
  return cudaSuccess;
}

PRESIM_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* function, int block_size,
                                                                        size_t shared) {
  return result(occupancy(blocks, function, block_size, shared));
}
PRESIM_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function,
                                                                                 int block_size, size_t shared, unsigned) {
  return result(occupancy(blocks, function, block_size, shared));
}
PRESIM_EXPORT cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void*, int blocks, int) {
  if (bytes == nullptr || blocks <= 0) return result(kInvalidValue);
  *bytes = size_t(device_config().shared_per_sm / blocks - 1024);
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaOccupancyMaxPotentialClusterSize(int* size, const void*, const cudaLaunchConfig_t*) {
  if (size == nullptr) return result(kInvalidValue);
  *size = device_config().compute_major >= 9 ? 8 : 1;
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaOccupancyMaxActiveClusters(int* count, const void* function, const cudaLaunchConfig_t* config) {
  int blocks = 0;
  if (count == nullptr || config == nullptr) return result(kInvalidValue);
  const dim3& block = config->blockDim;
  if (int status = occupancy(&blocks, function, int(block.x * block.y * block.z), config->dynamicSmemBytes)) return result(status);
  int cluster = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& attribute = config->attrs[i];
    if (attribute.id != cudaLaunchAttributeClusterDimension) continue;
    cluster = int(attribute.val.clusterDim.x * attribute.val.clusterDim.y * attribute.val.clusterDim.z);
  }
  *count = blocks * device_config().sm_count / (cluster > 0 ? cluster : 1);
  return cudaSuccess;
}
