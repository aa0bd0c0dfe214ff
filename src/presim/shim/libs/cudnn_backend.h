// cuDNN's backend interface: descriptors are sets of attributes. A plan executes a graph of them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace presim::libs::cudnn {

// cudnnStatus_t
enum Status : int {
  kSuccess = 0,
  kNotInitialized = 1001,
  kBadParam = 2000,
  kNullPointer = 2002,
  kNotFinalized = 2004,
  kNotSupported = 3000,
};

struct Node;

struct Value {
  int64_t count = 0;
  std::vector<char> bytes;                   // plain values
  std::vector<std::shared_ptr<Node>> nodes;  // descriptors
};

// Contents of a descriptor. Handles share them: a caller may destroy its handle while a plan still needs them.
struct Node {
  explicit Node(int descriptor_type) : type(descriptor_type) {}
  int type;
  bool finalized = false;
  int32_t work = -1;  // for a finalized plan: the work that its execution logs
  std::map<int, Value> values;
};

// The object behind a cudnnBackendDescriptor_t.
struct Descriptor {
  std::shared_ptr<Node> node;
};

// cudnnBackendDescriptorType_t, only the types that are distinguished here
enum Type : int {
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristics = 4,
  kPlan = 5,
  kConvForward = 10,
  kConvBackwardFilter = 11,
  kConvBackwardData = 12,
  kPointwiseOperation = 13,
  kGraph = 15,
  kTensor = 17,
  kMatmulOperation = 19,
  kRngOperation = 33,
  kSdpaForward = 41,
  kSdpaBackward = 43,
  kBandMask = 44,
  kSoftmaxOperation = 45,
};

// cudnnBackendAttributeName_t
enum Attribute : int {
  kPointwiseMode = 0,
  kConvCompute = 100,
  kConvDilations = 102,
  kConvStrides = 103,
  kConvPaddings = 105,
  kHeuristicsGraph = 201,
  kHeuristicsResults = 202,
  kConfigEngine = 300,
  kPlanConfig = 401,
  kPointwiseDescriptor = 750,
  kGraphOperations = 801,
  kTensorType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorVirtual = 907,
  kTensorRagged = 913,
  kEngineGraph = 1300,
  kEngineIndex = 1301,
  kEngineNumericalNotes = 1303,
  kMatmulA = 1520,
  kMatmulB = 1521,
  kMatmulC = 1522,
};

inline const Value* find(const Node& node, int attribute) {
  auto found = node.values.find(attribute);
  return found != node.values.end() ? &found->second : nullptr;
}

inline const Node* child(const Node& node, int attribute) {
  const Value* value = find(node, attribute);
  return value != nullptr && !value->nodes.empty() ? value->nodes[0].get() : nullptr;
}

template <class T>
std::vector<T> list(const Node& node, int attribute) {
  const Value* value = find(node, attribute);
  if (value == nullptr) return {};
  auto* first = reinterpret_cast<const T*>(value->bytes.data());
  return {first, first + value->bytes.size() / sizeof(T)};
}

template <class T>
T scalar(const Node& node, int attribute, T fallback) {
  const Value* value = find(node, attribute);
  if (value == nullptr || value->bytes.size() < sizeof(T)) return fallback;
  return *reinterpret_cast<const T*>(value->bytes.data());
}

// Description of a finalized graph when run by its engine `index` (cudnn_describe.cpp).
std::string describe(const Node& graph, int64_t engine);
const char* type_name(int cudnn_type);
int type_bits(int cudnn_type);
bool allows_tf32(const Node& graph);

// "attention ..." of a graph of primitive operations or one fused operation, else "" (cudnn_attention.cpp).
std::string describe_attention(const Node& graph);

}  // namespace presim::libs::cudnn
