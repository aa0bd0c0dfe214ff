// Streams, events and capture by the driver's names.
#include "core/streams.h"

#include "core/capture.h"
#include "core/events.h"
#include "driver.h"

using namespace presim;
using namespace presim::driver;

PRESIM_EXPORT CUresult cuStreamCreateWithPriority(CUstream* out, unsigned flags, int priority) {
  return result(create_stream(reinterpret_cast<Stream**>(out), flags, priority));
}
PRESIM_EXPORT CUresult cuStreamCreate(CUstream* out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }
PRESIM_EXPORT CUresult cuStreamDestroy(CUstream stream) { return result(destroy_stream(stream)); }
PRESIM_EXPORT CUresult cuStreamSynchronize(CUstream stream) { return result(synchronize_stream(stream)); }
PRESIM_EXPORT CUresult cuStreamQuery(CUstream stream) { return result(query_stream(stream)); }
PRESIM_EXPORT CUresult cuStreamGetPriority(CUstream handle, int* priority) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr || priority == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *priority = stream->priority;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuStreamGetFlags(CUstream handle, unsigned* flags) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr || flags == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *flags = stream->flags;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuStreamGetDevice(CUstream handle, CUdevice* device) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr || device == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *device = stream->device;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuStreamGetId(CUstream handle, unsigned long long* id) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr || id == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *id = uint64_t(stream->index) + 1;
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags) {
  return result(wait_event(stream, event, flags));
}
PRESIM_EXPORT CUresult cuStreamIsCapturing(CUstream handle, CUstreamCaptureStatus* out) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr || out == nullptr) return CUDA_ERROR_INVALID_HANDLE;
  *out = CUstreamCaptureStatus(int(capture_status(*stream)));
  return CUDA_SUCCESS;
}
PRESIM_EXPORT CUresult cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode) {
  return result(begin_capture(stream, mode, nullptr, nullptr, 0));
}
PRESIM_EXPORT CUresult cuStreamEndCapture(CUstream stream, CUgraph* out) {
  return result(end_capture(stream, reinterpret_cast<Graph**>(out)));
}
PRESIM_EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode* mode) {
  int value = mode != nullptr ? int(*mode) : -1;
  int status = exchange_capture_mode(&value);
  if (status == kSuccess) *mode = CUstreamCaptureMode(value);
  return result(status);
}
PRESIM_EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long flags) {
  return result(instantiate(reinterpret_cast<GraphExec**>(out), graph, flags));
}
PRESIM_EXPORT CUresult cuGraphLaunch(CUgraphExec exec, CUstream stream) { return result(launch_graph(exec, stream)); }
PRESIM_EXPORT CUresult cuGraphExecDestroy(CUgraphExec exec) { return result(destroy_exec(exec)); }
PRESIM_EXPORT CUresult cuGraphDestroy(CUgraph graph) { return result(destroy_graph(graph)); }

PRESIM_EXPORT CUresult cuEventCreate(CUevent* out, unsigned flags) {
  return result(create_event(reinterpret_cast<Event**>(out), flags));
}
PRESIM_EXPORT CUresult cuEventDestroy(CUevent event) { return result(destroy_event(event)); }
PRESIM_EXPORT CUresult cuEventRecord(CUevent event, CUstream stream) { return result(record_event(event, stream, 0)); }
PRESIM_EXPORT CUresult cuEventRecordWithFlags(CUevent event, CUstream stream, unsigned flags) {
  return result(record_event(event, stream, flags));
}
PRESIM_EXPORT CUresult cuEventQuery(CUevent event) { return result(query_event(event)); }
PRESIM_EXPORT CUresult cuEventSynchronize(CUevent event) { return result(synchronize_event(event)); }
PRESIM_EXPORT CUresult cuEventElapsedTime_v2(float* out, CUevent start, CUevent end) { return result(elapsed_ms(out, start, end)); }
PRESIM_EXPORT CUresult cuEventElapsedTime_v1(float* out, CUevent start, CUevent end)
    __asm__("cuEventElapsedTime");
PRESIM_EXPORT CUresult cuEventElapsedTime_v1(float* out, CUevent start, CUevent end) {
  return result(elapsed_ms(out, start, end));
}
