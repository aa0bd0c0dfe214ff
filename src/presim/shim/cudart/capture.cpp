// Stream capture by the runtime's names.
#include "core/capture.h"

#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

namespace {

Node* const* nodes(const cudaGraphNode_t* handles) { return reinterpret_cast<Node* const*>(handles); }

cudaStreamCaptureStatus public_status(CaptureStatus status) { return cudaStreamCaptureStatus(int(status)); }

}  // namespace

PRESIM_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return result(begin_capture(stream, mode, nullptr, nullptr, 0));
}
PRESIM_EXPORT cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                                        const cudaGraphNode_t* dependencies, const cudaGraphEdgeData*,
                                                        size_t count, cudaStreamCaptureMode mode) {
  Graph* into = find_graph(graph);
  if (into == nullptr) return result(kInvalidValue);
  return result(begin_capture(stream, mode, into, nodes(dependencies), count));
}
PRESIM_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* out) {
  return result(end_capture(stream, reinterpret_cast<Graph**>(out)));
}
PRESIM_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  int value = mode != nullptr ? int(*mode) : -1;
  int status = exchange_capture_mode(&value);
  if (status == kSuccess) *mode = cudaStreamCaptureMode(value);
  return result(status);
}

PRESIM_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* out) {
  if (int status = device_ready()) return result(status);
  Stream* stream = find_stream(handle);
  if (out == nullptr) return result(kInvalidValue);
  if (stream == nullptr) return result(kInvalidHandle);
  *out = public_status(capture_status(*stream));
  return cudaSuccess;
}

PRESIM_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status_out,
                                                   unsigned long long* id_out, cudaGraph_t* graph_out,
                                                   const cudaGraphNode_t** dependencies_out,
                                                   const cudaGraphEdgeData** edges_out, size_t* count_out) {
  if (int status = device_ready()) return result(status);
  Stream* stream = find_stream(handle);
  if (status_out == nullptr) return result(kInvalidValue);
  if (stream == nullptr) return result(kInvalidHandle);
  *status_out = public_status(capture_status(*stream));
  if (*status_out != cudaStreamCaptureStatusActive) return cudaSuccess;
  std::lock_guard lock(capture_mutex());
  Capture* capture = stream->capture;
  if (capture == nullptr) return cudaSuccess;
  if (id_out != nullptr) *id_out = capture->id;
  if (graph_out != nullptr) *graph_out = reinterpret_cast<cudaGraph_t>(capture->graph);
  if (dependencies_out != nullptr) *dependencies_out = reinterpret_cast<const cudaGraphNode_t*>(stream->last.data());
  if (edges_out != nullptr) *edges_out = nullptr;
  if (count_out != nullptr) *count_out = stream->last.size();
  return cudaSuccess;
}

PRESIM_EXPORT cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t* dependencies,
                                                              const cudaGraphEdgeData*, size_t count, unsigned flags) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return result(kInvalidHandle);
  std::lock_guard lock(capture_mutex());
  if (stream->capture == nullptr) return result(kIllegalState);
  if (flags == cudaStreamSetCaptureDependencies) stream->last.clear();
  stream->last.insert(stream->last.end(), nodes(dependencies), nodes(dependencies) + count);
  return cudaSuccess;
}
