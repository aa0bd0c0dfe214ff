#include "core/transfer.h"

#include "driver.h"

using namespace presim;
using namespace presim::driver;

namespace {

CUresult move(CUdeviceptr to, CUdeviceptr from, size_t bytes, Direction direction, CUstream stream, bool wait) {
  return result(copy(pointer(to), pointer(from), bytes, int(direction), stream, wait));
}

}  // namespace

PRESIM_EXPORT CUresult cuMemcpy(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return move(to, from, bytes, Direction::Default, nullptr, true);
}
PRESIM_EXPORT CUresult cuMemcpyAsync(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return move(to, from, bytes, Direction::Default, stream, false);
}
PRESIM_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, size_t bytes) {
  return move(to, CUdeviceptr(from), bytes, Direction::HostToDevice, nullptr, true);
}
PRESIM_EXPORT CUresult cuMemcpyDtoH_v2(void* to, CUdeviceptr from, size_t bytes) {
  return move(CUdeviceptr(to), from, bytes, Direction::DeviceToHost, nullptr, true);
}
PRESIM_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return move(to, from, bytes, Direction::DeviceToDevice, nullptr, true);
}
PRESIM_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, size_t bytes, CUstream stream) {
  return move(to, CUdeviceptr(from), bytes, Direction::HostToDevice, stream, false);
}
PRESIM_EXPORT CUresult cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return move(CUdeviceptr(to), from, bytes, Direction::DeviceToHost, stream, false);
}
PRESIM_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return move(to, from, bytes, Direction::DeviceToDevice, stream, false);
}
PRESIM_EXPORT CUresult cuMemcpyPeerAsync(CUdeviceptr to, CUcontext, CUdeviceptr from, CUcontext, size_t bytes, CUstream stream) {
  return move(to, from, bytes, Direction::DeviceToDevice, stream, false);
}
PRESIM_EXPORT CUresult cuMemcpyBatchAsync_v2(CUdeviceptr* to, CUdeviceptr* from, size_t* bytes, size_t count,
                                             CUmemcpyAttributes*, size_t*, size_t, CUstream stream) {
  for (size_t i = 0; i < count; ++i) {
    if (CUresult status = move(to[i], from[i], bytes[i], Direction::Default, stream, false)) return status;
  }
  return CUDA_SUCCESS;
}

PRESIM_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return result(fill(pointer(to), value, 1, count, nullptr, true));
}
PRESIM_EXPORT CUresult cuMemsetD16_v2(CUdeviceptr to, unsigned short value, size_t count) {
  return result(fill(pointer(to), value, 2, count, nullptr, true));
}
PRESIM_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return result(fill(pointer(to), value, 4, count, nullptr, true));
}
PRESIM_EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return result(fill(pointer(to), value, 1, count, stream, false));
}
PRESIM_EXPORT CUresult cuMemsetD16Async(CUdeviceptr to, unsigned short value, size_t count, CUstream stream) {
  return result(fill(pointer(to), value, 2, count, stream, false));
}
PRESIM_EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return result(fill(pointer(to), value, 4, count, stream, false));
}

// Flags in memory that others poll. One process emulates one rank, so a wait ends at once.
PRESIM_EXPORT CUresult cuStreamWriteValue32_v2(CUstream stream, CUdeviceptr to, cuuint32_t value, unsigned) {
  return result(fill(pointer(to), value, 4, 1, stream, false));
}
PRESIM_EXPORT CUresult cuStreamWaitValue32_v2(CUstream, CUdeviceptr, cuuint32_t, unsigned) { return CUDA_SUCCESS; }
PRESIM_EXPORT CUresult cuStreamWaitValue64_v2(CUstream, CUdeviceptr, cuuint64_t, unsigned) { return CUDA_SUCCESS; }
