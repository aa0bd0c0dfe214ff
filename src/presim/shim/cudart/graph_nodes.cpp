// Nodes that a program adds to a graph by hand.
#include <string>

#include "core/graphs.h"
#include "core/kernels.h"
#include "core/transfer.h"
#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

namespace {

struct Place {
  cudaGraph_t graph;
  const cudaGraphNode_t* dependencies;
  size_t count;
  cudaGraphNode_t* out;
};

int add(const Place& place, NodeType type, Entry entry = {}) {
  return add_explicit(place.graph, type, reinterpret_cast<Node* const*>(place.dependencies), place.count, std::move(entry),
                      reinterpret_cast<Node**>(place.out));
}

int add_kernel(const Place& place, const void* function, dim3 grid, dim3 block, unsigned shared) {
  Kernel* kernel = find_kernel(function);
  if (kernel == nullptr) return kInvalidDeviceFunction;
  auto sizes = [](dim3 d) { return std::to_string(d.x) + "," + std::to_string(d.y) + "," + std::to_string(d.z); };
  Entry entry;
  entry.work = intern(std::string("kernel name=") + kernel->name + " grid=" + sizes(grid) + " block=" + sizes(block) +
                      " shared=" + std::to_string(shared));
  return add(place, NodeType::Kernel, std::move(entry));
}

// Logged as a copy within the device; host memory is not distinguished.
int add_copy(const Place& place, size_t bytes) {
  Entry entry;
  entry.work = intern("copy direction=d2d bytes=" + std::to_string(bytes) + " pinned=0");
  return add(place, NodeType::Copy, std::move(entry));
}

int add_memset(const Place& place, size_t bytes) {
  Entry entry;
  entry.work = intern("memset bytes=" + std::to_string(bytes));
  return add(place, NodeType::Memset, std::move(entry));
}

int add_host(const Place& place, cudaHostFn_t function, void* data) {
  if (function == nullptr) return kInvalidValue;
  Entry entry;
  entry.effect = [function, data] { function(data); };
  return add(place, NodeType::Host, std::move(entry));
}

int add_event(const Place& place, NodeType type, cudaEvent_t handle) {
  Entry entry;
  entry.kind = type == NodeType::RecordEvent ? Kind::EventRecord : Kind::StreamWait;
  entry.external = find_event(handle);
  return entry.external == nullptr ? int(kInvalidHandle) : add(place, type, std::move(entry));
}

int add_subgraph(const Place& place, cudaGraph_t child) {
  return add_child(place.graph, child, reinterpret_cast<Node* const*>(place.dependencies), place.count,
                   reinterpret_cast<Node**>(place.out));
}

// The bodies exist and can be captured into. Their number of runs is a device value, so they are not replayed.
int add_conditional(const Place& place, cudaConditionalNodeParams& params) {
  unmodelled("cudaGraphConditionalNode");
  auto* bodies = new Graph*[params.size];  // owned by the graph in CUDA; its end is not known here
  for (unsigned i = 0; i < params.size; ++i) create_graph(&bodies[i]);
  params.phGraph_out = reinterpret_cast<cudaGraph_t*>(bodies);
  return add(place, NodeType::Conditional);
}

int add_any(const Place& place, cudaGraphNodeParams* params) {
  if (params == nullptr) return kInvalidValue;
  const cudaExtent& extent = params->memcpy.copyParams.extent;
  switch (params->type) {
    case cudaGraphNodeTypeKernel: {
      auto grid = params->kernel.gridDim, block = params->kernel.blockDim;
      return add_kernel(place, params->kernel.func, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z},
                        params->kernel.sharedMemBytes);
    }
    case cudaGraphNodeTypeMemcpy: return add_copy(place, extent.width * extent.height * extent.depth);
    case cudaGraphNodeTypeMemset:
      return add_memset(place, size_t(params->memset.elementSize) * params->memset.width * params->memset.height);
    case cudaGraphNodeTypeHost: return add_host(place, params->host.fn, params->host.userData);
    case cudaGraphNodeTypeGraph: return add_subgraph(place, params->graph.graph);
    case cudaGraphNodeTypeEmpty: return add(place, NodeType::Empty);
    case cudaGraphNodeTypeWaitEvent: return add_event(place, NodeType::WaitEvent, params->eventWait.event);
    case cudaGraphNodeTypeEventRecord: return add_event(place, NodeType::RecordEvent, params->eventRecord.event);
    case cudaGraphNodeTypeConditional: return add_conditional(place, params->conditional);
    default: unmodelled("cudaGraphAddNode"); return kNotSupported;
  }
}

}  // namespace

PRESIM_EXPORT cudaError_t cudaGraphAddNode(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                           const cudaGraphEdgeData*, size_t count, cudaGraphNodeParams* params) {
  return result(add_any({graph, dependencies, count, out}, params));
}
PRESIM_EXPORT cudaError_t cudaGraphAddKernelNode(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                                 size_t count, const cudaKernelNodeParams* p) {
  if (p == nullptr) return result(kInvalidValue);
  return result(add_kernel({graph, dependencies, count, out}, p->func, p->gridDim, p->blockDim, p->sharedMemBytes));
}
PRESIM_EXPORT cudaError_t cudaGraphAddMemcpyNode(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                                 size_t count, const cudaMemcpy3DParms* p) {
  if (p == nullptr) return result(kInvalidValue);
  return result(add_copy({graph, dependencies, count, out}, p->extent.width * p->extent.height * p->extent.depth));
}
PRESIM_EXPORT cudaError_t cudaGraphAddMemcpyNode1D(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                                   size_t count, void*, const void*, size_t bytes, cudaMemcpyKind) {
  return result(add_copy({graph, dependencies, count, out}, bytes));
}
PRESIM_EXPORT cudaError_t cudaGraphAddMemsetNode(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                                 size_t count, const cudaMemsetParams* p) {
  if (p == nullptr) return result(kInvalidValue);
  return result(add_memset({graph, dependencies, count, out}, size_t(p->elementSize) * p->width * p->height));
}
PRESIM_EXPORT cudaError_t cudaGraphAddHostNode(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                               size_t count, const cudaHostNodeParams* p) {
  return result(p == nullptr ? int(kInvalidValue) : add_host({graph, dependencies, count, out}, p->fn, p->userData));
}
PRESIM_EXPORT cudaError_t cudaGraphAddChildGraphNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                                     const cudaGraphNode_t* dependencies, size_t count, cudaGraph_t child) {
  return result(add_subgraph({graph, dependencies, count, out}, child));
}
PRESIM_EXPORT cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* out, cudaGraph_t graph, const cudaGraphNode_t* dependencies,
                                                size_t count) {
  return result(add({graph, dependencies, count, out}, NodeType::Empty));
}
PRESIM_EXPORT cudaError_t cudaGraphAddEventRecordNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                                      const cudaGraphNode_t* dependencies, size_t count, cudaEvent_t event) {
  return result(add_event({graph, dependencies, count, out}, NodeType::RecordEvent, event));
}
PRESIM_EXPORT cudaError_t cudaGraphAddEventWaitNode(cudaGraphNode_t* out, cudaGraph_t graph,
                                                    const cudaGraphNode_t* dependencies, size_t count, cudaEvent_t event) {
  return result(add_event({graph, dependencies, count, out}, NodeType::WaitEvent, event));
}
PRESIM_EXPORT cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle* out, cudaGraph_t, unsigned, unsigned) {
  static std::atomic<unsigned long long> next{1};
  if (out == nullptr) return result(kInvalidValue);
  *out = next++;
  return cudaSuccess;
}
