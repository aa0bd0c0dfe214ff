// Copies and fills.
#include "core/transfer.h"

#include "core/memory.h"
#include "runtime.h"
#include "symbols.h"

using namespace presim;
using namespace presim::cudart;

namespace {

char* at(const cudaPitchedPtr& pointer, const cudaPos& pos) {
  return static_cast<char*>(pointer.ptr) + (pos.z * pointer.ysize + pos.y) * pointer.pitch + pos.x;
}

// Arrays (textures) are not emulated. A box of contiguous slices is one tall rectangle.
int copy_3d(const cudaMemcpy3DParms* p, cudaStream_t stream, bool wait) {
  if (p == nullptr) return kInvalidValue;
  if (p->srcArray != nullptr || p->dstArray != nullptr) return kNotSupported;
  for (size_t z = 0; z < p->extent.depth; ++z) {
    cudaPos from = p->srcPos, to = p->dstPos;
    from.z += z;
    to.z += z;
    int status = copy_2d(at(p->dstPtr, to), p->dstPtr.pitch, at(p->srcPtr, from), p->srcPtr.pitch, p->extent.width,
                         p->extent.height, p->kind, stream, wait && z + 1 == p->extent.depth);
    if (status != kSuccess) return status;
  }
  return kSuccess;
}

int copy_to_symbol(const void* symbol, const void* from, size_t bytes, size_t offset, int kind, cudaStream_t stream, bool wait) {
  void* address = nullptr;
  if (int status = symbol_address(symbol, &address, nullptr)) return status;
  return copy(static_cast<char*>(address) + offset, from, bytes, kind, stream, wait);
}

int copy_from_symbol(void* to, const void* symbol, size_t bytes, size_t offset, int kind, cudaStream_t stream, bool wait) {
  void* address = nullptr;
  if (int status = symbol_address(symbol, &address, nullptr)) return status;
  return copy(to, static_cast<char*>(address) + offset, bytes, kind, stream, wait);
}

}  // namespace

PRESIM_EXPORT cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return result(copy(to, from, bytes, kind, nullptr, true));
}
PRESIM_EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return result(copy(to, from, bytes, kind, stream, false));
}
PRESIM_EXPORT cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                       size_t height, cudaMemcpyKind kind) {
  return result(copy_2d(to, to_pitch, from, from_pitch, width, height, kind, nullptr, true));
}
PRESIM_EXPORT cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                            size_t height, cudaMemcpyKind kind, cudaStream_t stream) {
  return result(copy_2d(to, to_pitch, from, from_pitch, width, height, kind, stream, false));
}
PRESIM_EXPORT cudaError_t cudaMemcpy3D(const cudaMemcpy3DParms* p) { return result(copy_3d(p, nullptr, true)); }
PRESIM_EXPORT cudaError_t cudaMemcpy3DAsync(const cudaMemcpy3DParms* p, cudaStream_t stream) {
  return result(copy_3d(p, stream, false));
}
PRESIM_EXPORT cudaError_t cudaMemcpyPeer(void* to, int to_device, const void* from, int from_device, size_t bytes) {
  return result(copy_between(to, to_device, from, from_device, bytes, nullptr, true));
}
PRESIM_EXPORT cudaError_t cudaMemcpyPeerAsync(void* to, int to_device, const void* from, int from_device, size_t bytes,
                                              cudaStream_t stream) {
  return result(copy_between(to, to_device, from, from_device, bytes, stream, false));
}
PRESIM_EXPORT cudaError_t cudaMemcpyBatchAsync(void* const* to, const void* const* from, const size_t* bytes, size_t count,
                                               cudaMemcpyAttributes*, size_t*, size_t, cudaStream_t stream) {
  for (size_t i = 0; i < count; ++i) {
    if (int status = copy(to[i], from[i], bytes[i], cudaMemcpyDefault, stream, false)) return result(status);
  }
  return cudaSuccess;
}

PRESIM_EXPORT cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t bytes, size_t offset,
                                             cudaMemcpyKind kind) {
  return result(copy_to_symbol(symbol, from, bytes, offset, kind, nullptr, true));
}
PRESIM_EXPORT cudaError_t cudaMemcpyToSymbolAsync(const void* symbol, const void* from, size_t bytes, size_t offset,
                                                  cudaMemcpyKind kind, cudaStream_t stream) {
  return result(copy_to_symbol(symbol, from, bytes, offset, kind, stream, false));
}
PRESIM_EXPORT cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t bytes, size_t offset, cudaMemcpyKind kind) {
  return result(copy_from_symbol(to, symbol, bytes, offset, kind, nullptr, true));
}
PRESIM_EXPORT cudaError_t cudaMemcpyFromSymbolAsync(void* to, const void* symbol, size_t bytes, size_t offset,
                                                    cudaMemcpyKind kind, cudaStream_t stream) {
  return result(copy_from_symbol(to, symbol, bytes, offset, kind, stream, false));
}

PRESIM_EXPORT cudaError_t cudaMemset(void* to, int value, size_t bytes) {
  return result(fill(to, unsigned(value), 1, bytes, nullptr, true));
}
PRESIM_EXPORT cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream) {
  return result(fill(to, unsigned(value), 1, bytes, stream, false));
}
PRESIM_EXPORT cudaError_t cudaMemset2D(void* to, size_t pitch, int value, size_t width, size_t height) {
  return result(fill_2d(to, pitch, unsigned(value), 1, width, height, nullptr, true));
}
PRESIM_EXPORT cudaError_t cudaMemset2DAsync(void* to, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  return result(fill_2d(to, pitch, unsigned(value), 1, width, height, stream, false));
}
