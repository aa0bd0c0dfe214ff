// Contexts: one per device, always present, never destroyed. A context is a pointer into a table by device.
#include "core/shared_devices.h"
#include "core/streams.h"
#include "core/visible_gpus.h"
#include "driver.h"

using namespace presim;
using namespace presim::driver;

namespace {

char contexts[kMaxDevices];
constexpr int kDeepest = 32;
thread_local bool has_current = true;  // runtime calls make the primary context current, as in CUDA
thread_local CUcontext stack[kDeepest];
thread_local int depth = 0;

CUcontext context_of(int device) { return reinterpret_cast<CUcontext>(contexts + device); }
int device_of(CUcontext context) { return int(reinterpret_cast<char*>(context) - contexts); }
CUcontext current() { return has_current ? context_of(current_device()) : nullptr; }

int make_current(CUcontext context) {
  has_current = context != nullptr;
  if (context == nullptr) return kSuccess;
  return valid_device(device_of(context)) ? set_current_device(device_of(context)) : int(kInvalidContext);
}

}  // namespace

PRESIM_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* out, CUdevice device) {
  if (int status = device_ready()) return result(status);
  if (out == nullptr || !valid_device(device)) return result(out == nullptr ? kInvalidValue : kInvalidDevice);
  use_gpu(gpu_of(device));
  *out = context_of(device);
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuDevicePrimaryCtxRelease(CUdevice) { return CUDA_SUCCESS; }
PRESIM_EXPORT CUresult cuDevicePrimaryCtxReset(CUdevice) { return CUDA_SUCCESS; }
PRESIM_EXPORT CUresult cuDevicePrimaryCtxSetFlags(CUdevice, unsigned) { return CUDA_SUCCESS; }
PRESIM_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
  if (!valid_device(device)) return CUDA_ERROR_INVALID_DEVICE;
  if (flags != nullptr) *flags = 0;
  if (active != nullptr) *active = has_context(gpu_of(device));  // PyTorch asks before calls that create one
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuCtxCreate(CUcontext* out, CUctxCreateParams*, unsigned, CUdevice device) {
  if (CUresult status = cuDevicePrimaryCtxRetain(out, device)) return status;
  return result(make_current(*out));
}
PRESIM_EXPORT CUresult cuCtxDestroy(CUcontext) { return CUDA_SUCCESS; }
PRESIM_EXPORT CUresult cuCtxGetCurrent(CUcontext* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = current();
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuCtxSetCurrent(CUcontext context) { return result(make_current(context)); }
PRESIM_EXPORT CUresult cuCtxPushCurrent(CUcontext context) {
  if (depth == kDeepest) return CUDA_ERROR_INVALID_VALUE;
  stack[depth++] = current();
  return result(make_current(context));
}
PRESIM_EXPORT CUresult cuCtxPopCurrent(CUcontext* out) {
  if (out != nullptr) *out = current();
  return result(make_current(depth > 0 ? stack[--depth] : nullptr));
}
PRESIM_EXPORT CUresult cuCtxGetDevice(CUdevice* out) {
  if (out == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *out = current_device();
  return result(has_current ? kSuccess : kInvalidContext);
}
PRESIM_EXPORT CUresult cuCtxGetApiVersion(CUcontext, unsigned* version) {
  if (version != nullptr) *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuCtxGetFlags(unsigned* flags) {
  if (flags != nullptr) *flags = 0;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuCtxGetId(CUcontext context, unsigned long long* id) {
  if (id == nullptr) return CUDA_ERROR_INVALID_VALUE;
  *id = context == nullptr ? uint64_t(current_device()) + 1 : uint64_t(device_of(context)) + 1;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuCtxSynchronize() { return result(synchronize_device()); }
PRESIM_EXPORT CUresult cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) { return CUDA_SUCCESS; }
PRESIM_EXPORT CUresult cuCtxDisablePeerAccess(CUcontext) { return CUDA_SUCCESS; }
PRESIM_EXPORT CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }
PRESIM_EXPORT CUresult cuStreamGetCtx(CUstream handle, CUcontext* out) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr || out == nullptr) return result(out == nullptr ? kInvalidValue : kInvalidHandle);
  *out = context_of(stream->device);
  return CUDA_SUCCESS;
}
