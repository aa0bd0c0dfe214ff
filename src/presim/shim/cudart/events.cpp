#include "core/events.h"

#include <cstring>

#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

PRESIM_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  return result(create_event(reinterpret_cast<Event**>(out), flags));
}
PRESIM_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }
PRESIM_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) { return result(destroy_event(event)); }
PRESIM_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned flags) {
  return result(record_event(event, stream, flags));
}
PRESIM_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return result(record_event(event, stream, 0));
}
PRESIM_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
  return result(wait_event(stream, event, flags));
}
PRESIM_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) { return result(query_event(event)); }
PRESIM_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) { return result(synchronize_event(event)); }
PRESIM_EXPORT cudaError_t cudaEventElapsedTime(float* out, cudaEvent_t start, cudaEvent_t end) {
  return result(elapsed_ms(out, start, end));
}
