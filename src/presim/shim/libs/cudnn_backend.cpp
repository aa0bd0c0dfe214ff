// cuDNN's backend interface: descriptors, the choice of an engine, and execution.
#include "libs/cudnn_backend.h"

#include <algorithm>

#include "libs/common.h"

namespace {
using namespace presim::libs;
using namespace presim::libs::cudnn;

constexpr int kTypeDescriptor = 15;
constexpr int kTensorCoreNote = 0;
// Frontends request some engines by number and refuse numbers that the graph does not have.
constexpr int64_t kEngines = 64;

// cudnnBackendAttributeType_t: bytes of one element.
size_t element_bytes(int type) {
  switch (type) {
    case 2: case 24: return 1;                            // boolean, char
    case 0: case 3: case 5: case 6: return 8;             // handle, int64, double, pointer
    case 26: return 16;                                   // fraction
    default: return 4;                                    // enums, int32, float
  }
}

Value number(int64_t value) {
  Value result;
  result.count = 1;
  result.bytes.resize(sizeof value);
  std::memcpy(result.bytes.data(), &value, sizeof value);
  return result;
}

Value single(std::shared_ptr<Node> node) {
  Value result;
  result.count = 1;
  result.nodes.push_back(std::move(node));
  return result;
}

// One engine runs everything. If TF32 is allowed there are two, so that a framework that forbids it (by skipping
// engines with the tensor-core note) uses the other.
Value engine_configs(const Node& heuristics) {
  Value result;
  const Value* graph = find(heuristics, kHeuristicsGraph);
  if (graph == nullptr || graph->nodes.empty()) return result;
  result.count = allows_tf32(*graph->nodes[0]) ? 2 : 1;
  for (int64_t i = 0; i < result.count; ++i) {
    auto engine = std::make_shared<Node>(kEngine);
    engine->values[kEngineGraph] = *graph;
    engine->values[kEngineIndex] = number(result.count == 2 ? i : 1);
    auto config = std::make_shared<Node>(kEngineConfig);
    config->values[kConfigEngine] = single(engine);
    engine->finalized = config->finalized = true;
    result.nodes.push_back(config);
  }
  return result;
}

Value numerical_notes(const Node& engine) {
  Value result;
  if (scalar<int64_t>(engine, kEngineIndex, 1) != 0) return result;
  int32_t note = kTensorCoreNote;
  result.count = 1;
  result.bytes.assign(reinterpret_cast<char*>(&note), reinterpret_cast<char*>(&note) + sizeof note);
  return result;
}

// Attributes that a caller reads without setting them. Workspaces are 0: their real sizes are unknown without the
// library.
Value answer(const Node& node, int attribute) {
  if (node.type == kEngineHeuristics && attribute == kHeuristicsResults) return engine_configs(node);
  if (node.type == kEngine && attribute == kEngineNumericalNotes) return numerical_notes(node);
  if (const Value* stored = find(node, attribute)) return *stored;
  switch (attribute) {
    case 303: case 304: case 402: return number(0);  // workspace, shared memory, workspace of the plan
    case 802: return number(kEngines);               // engines of a graph
    default: return {};
  }
}

int32_t plan_work(const Node& plan) {
  const Node* config = child(plan, kPlanConfig);
  const Node* engine = config != nullptr ? child(*config, kConfigEngine) : nullptr;
  const Node* graph = engine != nullptr ? child(*engine, kEngineGraph) : nullptr;
  if (graph == nullptr) return -1;
  return presim::intern(describe(*graph, scalar<int64_t>(*engine, kEngineIndex, 1)));
}

void copy_descriptors(const Value& value, int64_t count, void* out) {
  auto** handles = static_cast<Descriptor**>(out);
  for (int64_t i = 0; i < count; ++i)
    if (handles[i] != nullptr) handles[i]->node = value.nodes[size_t(i)];
}

}  // namespace

PRESIM_EXPORT int cudnnBackendCreateDescriptor(int type, Descriptor** out) {
  if (out == nullptr) return kNullPointer;
  *out = new Descriptor{std::make_shared<Node>(type)};
  return kSuccess;
}

PRESIM_EXPORT int cudnnBackendDestroyDescriptor(Descriptor* descriptor) {
  delete descriptor;
  return kSuccess;
}

PRESIM_EXPORT int cudnnBackendInitialize(Descriptor* descriptor) { return descriptor != nullptr ? kSuccess : kNullPointer; }

PRESIM_EXPORT int cudnnBackendFinalize(Descriptor* descriptor) {
  if (descriptor == nullptr) return kNullPointer;
  Node& node = *descriptor->node;
  if (node.type == kPlan) {
    node.work = plan_work(node);
    if (node.work < 0 && child(node, kPlanConfig) == nullptr) return kBadParam;
  }
  node.finalized = true;
  return kSuccess;
}

PRESIM_EXPORT int cudnnBackendSetAttribute(Descriptor* descriptor, int attribute, int type, int64_t count,
                                           const void* elements) {
  if (descriptor == nullptr || (elements == nullptr && count > 0)) return kNullPointer;
  if (count < 0) return kBadParam;
  Value value;
  value.count = count;
  if (type == kTypeDescriptor) {
    auto* const* handles = static_cast<Descriptor* const*>(elements);
    for (int64_t i = 0; i < count; ++i) {
      if (handles[i] == nullptr) return kNullPointer;
      value.nodes.push_back(handles[i]->node);
    }
  } else if (count > 0) {
    auto* first = static_cast<const char*>(elements);
    value.bytes.assign(first, first + size_t(count) * element_bytes(type));
  }
  descriptor->node->values[attribute] = std::move(value);
  return kSuccess;
}

PRESIM_EXPORT int cudnnBackendGetAttribute(Descriptor* descriptor, int attribute, int type, int64_t requested,
                                           int64_t* count, void* elements) {
  if (descriptor == nullptr) return kNullPointer;
  Value value = answer(*descriptor->node, attribute);
  bool only_count = elements == nullptr || requested <= 0;
  int64_t given = only_count ? value.count : std::min(value.count, requested);
  if (count != nullptr) *count = given;
  if (only_count) return kSuccess;
  if (type == kTypeDescriptor) {
    copy_descriptors(value, std::min(given, int64_t(value.nodes.size())), elements);
  } else if (!value.bytes.empty()) {
    std::memcpy(elements, value.bytes.data(), std::min(value.bytes.size(), size_t(given) * element_bytes(type)));
  }
  return kSuccess;
}

PRESIM_EXPORT int cudnnBackendExecute(void* handle, Descriptor* plan, Descriptor* variants) {
  if (handle_of(handle) == nullptr) return kNotInitialized;
  if (plan == nullptr || variants == nullptr) return kNullPointer;
  if (!plan->node->finalized) return kNotFinalized;
  if (plan->node->work < 0) {
    presim::unmodelled("cudnnBackendExecute of a plan without a graph");
    return kSuccess;
  }
  presim::log_work(stream_of(handle), plan->node->work);
  return kSuccess;
}
