// Graphs: queries, instantiation, launch, user objects.
#include "core/graphs.h"

#include <algorithm>
#include <cstring>

#include "core/capture.h"
#include "core/memory.h"
#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

namespace {

Graph** graphs(cudaGraph_t* out) { return reinterpret_cast<Graph**>(out); }
GraphExec** execs(cudaGraphExec_t* out) { return reinterpret_cast<GraphExec**>(out); }
const Node* node(cudaGraphNode_t handle) { return reinterpret_cast<const Node*>(handle); }

// An array and its count: without an array, only the count is returned.
template <class Range>
int give_all(const Range& found, cudaGraphNode_t* out, size_t* count) {
  if (count == nullptr) return kInvalidValue;
  if (out == nullptr) return *count = found.size(), kSuccess;
  size_t given = std::min(*count, found.size());
  for (size_t i = 0; i < *count; ++i) {
    out[i] = i < given ? reinterpret_cast<cudaGraphNode_t>(const_cast<Node*>(&*found[i])) : nullptr;
  }
  *count = given;
  return kSuccess;
}

}  // namespace

PRESIM_EXPORT cudaError_t cudaGraphCreate(cudaGraph_t* out, unsigned) { return result(create_graph(graphs(out))); }
PRESIM_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return result(destroy_graph(graph)); }
PRESIM_EXPORT cudaError_t cudaGraphClone(cudaGraph_t* out, cudaGraph_t graph) {
  return result(out == nullptr ? int(kInvalidValue) : clone_graph(graphs(out), graph));
}

PRESIM_EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* out, size_t* count) {
  Graph* graph = find_graph(handle);
  if (graph == nullptr) return result(kInvalidValue);
  std::lock_guard lock(capture_mutex());
  return result(give_all(graph->nodes, out, count));
}
PRESIM_EXPORT cudaError_t cudaGraphGetRootNodes(cudaGraph_t handle, cudaGraphNode_t* out, size_t* count) {
  Graph* graph = find_graph(handle);
  if (graph == nullptr) return result(kInvalidValue);
  std::lock_guard lock(capture_mutex());
  std::vector<Node*> roots;
  for (auto& each : graph->nodes) {
    if (each->dependencies.empty()) roots.push_back(each.get());
  }
  return result(give_all(roots, out, count));
}
PRESIM_EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t handle, cudaGraphNode_t* out, cudaGraphEdgeData* edges,
                                                       size_t* count) {
  if (handle == nullptr) return result(kInvalidValue);
  std::lock_guard lock(capture_mutex());
  int status = give_all(node(handle)->dependencies, out, count);
  if (status == kSuccess && edges != nullptr && out != nullptr) std::memset(edges, 0, *count * sizeof *edges);
  return result(status);
}
PRESIM_EXPORT cudaError_t cudaGraphNodeGetType(cudaGraphNode_t handle, cudaGraphNodeType* type) {
  if (handle == nullptr || type == nullptr) return result(kInvalidValue);
  *type = cudaGraphNodeType(int(node(handle)->type));
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char*, unsigned) {
  return result(find_graph(graph) != nullptr ? kSuccess : kInvalidValue);
}

PRESIM_EXPORT cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags) {
  return result(instantiate(execs(out), graph, flags));
}
PRESIM_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t graph, unsigned long long flags) {
  return result(instantiate(execs(out), graph, flags));
}
PRESIM_EXPORT cudaError_t cudaGraphInstantiateWithParams(cudaGraphExec_t* out, cudaGraph_t graph,
                                                         cudaGraphInstantiateParams* params) {
  if (params == nullptr) return result(kInvalidValue);
  int status = instantiate(execs(out), graph, params->flags);
  params->result_out = status == kSuccess ? cudaGraphInstantiateSuccess : cudaGraphInstantiateError;
  params->errNode_out = nullptr;
  return result(status);
}
PRESIM_EXPORT cudaError_t cudaGraphExecGetFlags(cudaGraphExec_t handle, unsigned long long* flags) {
  GraphExec* exec = find_exec(handle);
  if (exec == nullptr || flags == nullptr) return result(kInvalidValue);
  *flags = exec->flags;
  return cudaSuccess;
}
// CUDA refuses graphs of another topology; here any graph can replace another.
PRESIM_EXPORT cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  int status = update_exec(exec, graph);
  if (info != nullptr) {
    std::memset(info, 0, sizeof *info);
    info->result = status == kSuccess ? cudaGraphExecUpdateSuccess : cudaGraphExecUpdateError;
  }
  return result(status);
}
PRESIM_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) { return result(launch_graph(exec, stream)); }
PRESIM_EXPORT cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t) {
  return result(find_exec(exec) != nullptr ? kSuccess : kInvalidValue);
}
PRESIM_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) { return result(destroy_exec(exec)); }

PRESIM_EXPORT cudaError_t cudaUserObjectCreate(cudaUserObject_t* out, void* data, cudaHostFn_t destroy, unsigned references,
                                               unsigned) {
  return result(create_user_object(reinterpret_cast<UserObject**>(out), data, destroy, references));
}
PRESIM_EXPORT cudaError_t cudaUserObjectRetain(cudaUserObject_t object, unsigned count) {
  return result(add_references(object, count));
}
PRESIM_EXPORT cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned count) {
  return result(add_references(object, -int64_t(count)));
}
PRESIM_EXPORT cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count, unsigned flags) {
  return result(retain_in_graph(graph, object, count, flags == cudaGraphUserObjectMove));
}
PRESIM_EXPORT cudaError_t cudaGraphReleaseUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned count) {
  return result(release_from_graph(graph, object, count));
}

PRESIM_EXPORT cudaError_t cudaDeviceGetGraphMemAttribute(int, cudaGraphMemAttributeType, void* value) {
  if (value == nullptr) return result(kInvalidValue);
  *static_cast<uint64_t*>(value) = 0;  // memory nodes are not emulated
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaDeviceSetGraphMemAttribute(int, cudaGraphMemAttributeType, void*) { return cudaSuccess; }
PRESIM_EXPORT cudaError_t cudaDeviceGraphMemTrim(int) { return cudaSuccess; }
