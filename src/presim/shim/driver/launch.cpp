#include "core/config.h"
#include "core/enqueue.h"
#include "core/kernels.h"
#include "driver.h"

using namespace presim;
using namespace presim::driver;

namespace {

int launch(CUfunction function, Dim3 grid, Dim3 block, unsigned shared, CUstream stream) {
  int status = launch_kernel(function, grid, block, shared, stream);
  // The driver has no error codes for invalid device functions or configurations.
  if (status == kInvalidDeviceFunction) return kInvalidHandle;
  return status == kInvalidConfiguration ? int(kInvalidValue) : status;
}

int occupancy(int* blocks, CUfunction function, int block_size, size_t shared) {
  Kernel* kernel = find_kernel(function);
  if (blocks == nullptr || kernel == nullptr) return blocks == nullptr ? kInvalidValue : kInvalidHandle;
  *blocks = blocks_per_sm(*kernel, block_size, shared);
  return kSuccess;
}

}  // namespace

PRESIM_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                                      unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void**, void**) {
  return result(launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream));
}
PRESIM_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* c, CUfunction function, void**, void**) {
  if (c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  return result(launch(function, {c->gridDimX, c->gridDimY, c->gridDimZ}, {c->blockDimX, c->blockDimY, c->blockDimZ},
                       c->sharedMemBytes, c->hStream));
}
PRESIM_EXPORT CUresult cuLaunchCooperativeKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                                                 unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                                                 CUstream stream, void**) {
  return result(launch(function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, stream));
}
PRESIM_EXPORT CUresult cuLaunchHostFunc(CUstream stream, CUhostFn function, void* data) {
  return result(enqueue_host(stream, function, data));
}
PRESIM_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction function, int block_size,
                                                                   size_t shared) {
  return result(occupancy(blocks, function, block_size, shared));
}
PRESIM_EXPORT CUresult cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, CUfunction function, int block_size,
                                                                            size_t shared, unsigned) {
  return result(occupancy(blocks, function, block_size, shared));
}
PRESIM_EXPORT CUresult cuOccupancyMaxActiveClusters(int* count, CUfunction function, const CUlaunchConfig* c) {
  int blocks = 0;
  if (count == nullptr || c == nullptr) return CUDA_ERROR_INVALID_VALUE;
  int threads = int(c->blockDimX * c->blockDimY * c->blockDimZ);
  if (int status = occupancy(&blocks, function, threads, c->sharedMemBytes)) return result(status);
  *count = blocks * device_config().sm_count / 2;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuOccupancyMaxPotentialClusterSize(int* size, CUfunction, const CUlaunchConfig*) {
  if (size == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *size = device_config().compute_major >= 9 ? 8 : 1;
  return CUDA_SUCCESS;
}

// A descriptor that only kernels read, and kernels do not run.
PRESIM_EXPORT CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType, cuuint32_t, void* address,
                                              const cuuint64_t*, const cuuint64_t*, const cuuint32_t*, const cuuint32_t*,
                                              CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                                              CUtensorMapFloatOOBfill) {
  if (out == nullptr || address == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = CUtensorMap{};
  return CUDA_SUCCESS;
}
