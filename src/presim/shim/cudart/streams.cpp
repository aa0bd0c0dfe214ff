// Streams and host functions.
#include "core/streams.h"

#include <cstring>

#include "core/capture.h"
#include "core/enqueue.h"
#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

namespace {

struct Callback {
  cudaStreamCallback_t function;
  cudaStream_t stream;
  void* data;
};

template <class Use>
cudaError_t with_stream(cudaStream_t handle, Use use) {
  if (int status = device_ready()) return result(status);
  Stream* stream = find_stream(handle);
  return result(stream == nullptr ? int(kInvalidHandle) : use(*stream));
}

template <class T, class Value>
int give(T* out, Value value) {
  if (out == nullptr) return kInvalidValue;
  *out = T(value);
  return kSuccess;
}

}  // namespace

PRESIM_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int priority) {
  return result(create_stream(reinterpret_cast<Stream**>(out), flags, priority));
}
PRESIM_EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  return cudaStreamCreateWithPriority(out, flags, 0);
}
PRESIM_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithPriority(out, 0, 0); }
PRESIM_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) { return result(destroy_stream(stream)); }
PRESIM_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) { return result(synchronize_stream(stream)); }
PRESIM_EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) { return result(query_stream(stream)); }

PRESIM_EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  return with_stream(stream, [=](Stream& s) { return give(priority, s.priority); });
}
PRESIM_EXPORT cudaError_t cudaStreamGetFlags(cudaStream_t stream, unsigned* flags) {
  return with_stream(stream, [=](Stream& s) { return give(flags, s.flags); });
}
PRESIM_EXPORT cudaError_t cudaStreamGetId(cudaStream_t stream, unsigned long long* id) {
  return with_stream(stream, [=](Stream& s) { return give(id, s.index + 1); });
}
PRESIM_EXPORT cudaError_t cudaStreamGetDevice(cudaStream_t stream, int* device) {
  return with_stream(stream, [=](Stream& s) { return give(device, s.device); });
}
PRESIM_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (int status = device_ready()) return result(status);
  if (least != nullptr) *least = kLeastPriority;
  if (greatest != nullptr) *greatest = kGreatestPriority;
  return cudaSuccess;
}

PRESIM_EXPORT cudaError_t cudaStreamGetAttribute(cudaStream_t stream, cudaLaunchAttributeID, cudaLaunchAttributeValue* value) {
  if (value != nullptr) std::memset(value, 0, sizeof *value);
  return with_stream(stream, [](Stream&) { return int(kSuccess); });
}
PRESIM_EXPORT cudaError_t cudaStreamSetAttribute(cudaStream_t stream, cudaLaunchAttributeID, const cudaLaunchAttributeValue*) {
  return with_stream(stream, [](Stream&) { return int(kSuccess); });
}
PRESIM_EXPORT cudaError_t cudaStreamCopyAttributes(cudaStream_t, cudaStream_t) { return cudaSuccess; }
PRESIM_EXPORT cudaError_t cudaStreamAttachMemAsync(cudaStream_t, void*, size_t, unsigned) { return cudaSuccess; }

PRESIM_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data) {
  return result(enqueue_host(stream, function, data));
}
PRESIM_EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t function, void* data, unsigned) {
  if (function == nullptr) return result(kInvalidValue);
  return with_stream(stream, [=](Stream& s) {
    if (int status = refuse_in_capture(s)) return status;
    function(stream, cudaSuccess, data);
    return int(kSuccess);
  });
}
