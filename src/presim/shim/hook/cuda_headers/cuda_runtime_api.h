// The few declarations of CUDA's runtime interface that PyTorch's allocator and stream headers mention, so that the
// operator hook compiles on a machine without CUDA. Only opaque types and enumerations: nothing here is called.
#pragma once
#include <cstddef>

typedef enum cudaError {
  cudaSuccess = 0,
  cudaErrorMemoryAllocation = 2,
  cudaErrorCudartUnloading = 4,
  cudaErrorNotReady = 600,
} cudaError_t;
typedef struct CUstream_st* cudaStream_t;
typedef struct CUevent_st* cudaEvent_t;
typedef struct CUgraph_st* cudaGraph_t;
typedef struct CUgraphExec_st* cudaGraphExec_t;
typedef struct CUgraphNode_st* cudaGraphNode_t;
typedef void (*cudaHostFn_t)(void*);
enum cudaStreamCaptureStatus {
  cudaStreamCaptureStatusNone = 0,
  cudaStreamCaptureStatusActive = 1,
  cudaStreamCaptureStatusInvalidated = 2,
};
enum cudaStreamCaptureMode {
  cudaStreamCaptureModeGlobal = 0,
  cudaStreamCaptureModeThreadLocal = 1,
  cudaStreamCaptureModeRelaxed = 2,
};
enum cudaMemcpyKind {
  cudaMemcpyHostToHost = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost = 2,
  cudaMemcpyDeviceToDevice = 3,
  cudaMemcpyDefault = 4,
};
struct cudaDeviceProp;
typedef struct CUuserObject_st* cudaUserObject_t;
enum { cudaUserObjectNoDestructorSync = 1, cudaGraphUserObjectMove = 1 };

extern "C" {
cudaError_t cudaGetLastError();
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus* status);
cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode* mode);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaUserObjectCreate(cudaUserObject_t* made, void* pointer, cudaHostFn_t destroy, unsigned count,
                                 unsigned flags);
cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count = 1);
cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count = 1,
                                      unsigned flags = 0);
cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, enum cudaStreamCaptureStatus* status,
                                        unsigned long long* id = nullptr, cudaGraph_t* graph = nullptr,
                                        const cudaGraphNode_t** dependencies = nullptr, size_t* count = nullptr);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, enum cudaStreamCaptureStatus* status,
                                     unsigned long long* id = nullptr, cudaGraph_t* graph = nullptr,
                                     const cudaGraphNode_t** dependencies = nullptr, const void** edges = nullptr,
                                     size_t* count = nullptr);
}
