// Attention in a cuDNN graph. Frontends build it from primitive operations (products, scaling, mask, softmax,
// dropout). With a new library and a simple case they use one fused operation whose score modifiers are a separate
// graph.
#include "libs/common.h"
#include "libs/cudnn_backend.h"

namespace presim::libs::cudnn {
namespace {

constexpr int kExp = 13, kCompareGreater = 302, kCompareGreaterEqual = 303;
constexpr int kForwardSubgraph = 2811, kForwardDropout = 2818, kBackwardSubgraph = 2867;

struct Shapes {
  bool backward = false;
  const Node *q = nullptr, *k = nullptr, *v = nullptr;
  bool k_transposed = false;  // [batch, heads, dim, length]
  bool v_transposed = false;
};

struct Contents {
  std::vector<const Node*> products;
  bool exponential = false, causal = false, dropout = false;
};

void look_at(const Node& operation, Contents& contents) {
  if (operation.type == kMatmulOperation) contents.products.push_back(&operation);
  if (operation.type == kRngOperation) contents.dropout = true;
  if (operation.type == kBandMask) contents.causal = true;
  if (operation.type == kSoftmaxOperation) contents.exponential = true;
  const Node* pointwise = operation.type == kPointwiseOperation ? child(operation, kPointwiseDescriptor) : nullptr;
  if (pointwise == nullptr) return;
  int mode = scalar<int32_t>(*pointwise, kPointwiseMode, -1);
  contents.exponential |= mode == kExp;
  // Masks compare row and column numbers; a padding mask compares with a length by "less than".
  contents.causal |= mode == kCompareGreater || mode == kCompareGreaterEqual;
}

Contents look(const Value* operations) {
  Contents contents;
  if (operations == nullptr) return contents;
  for (auto& operation : operations->nodes) look_at(*operation, contents);
  return contents;
}

bool in_memory(const Node* tensor) { return tensor != nullptr && !scalar<bool>(*tensor, kTensorVirtual, false); }

// The first product of two tensors in memory is Q K^T. In the backward graph the second one is dO V^T, while the
// forward graph has P V with a computed P.
bool primitive_shapes(const Contents& contents, Shapes& shapes) {
  if (!contents.exponential || contents.products.size() < 2) return false;
  shapes.backward = contents.products.size() >= 4;
  for (const Node* product : contents.products) {
    const Node *a = child(*product, kMatmulA), *b = child(*product, kMatmulB);
    if (a == nullptr || b == nullptr) return false;
    if (shapes.q == nullptr && in_memory(a)) {
      shapes.q = a;
      shapes.k = b;
      shapes.k_transposed = true;
    } else if (shapes.q != nullptr && shapes.v == nullptr && (!shapes.backward || in_memory(a)) && in_memory(b)) {
      shapes.v = b;
      shapes.v_transposed = shapes.backward;
    }
  }
  return shapes.q != nullptr && shapes.k != nullptr && shapes.v != nullptr;
}

bool fused_shapes(const Node& operation, Shapes& shapes) {
  shapes.backward = operation.type == kSdpaBackward;
  int first = shapes.backward ? 2851 : 2800;
  shapes.q = child(operation, first);
  shapes.k = child(operation, first + 1);
  shapes.v = child(operation, first + 2);
  return shapes.q != nullptr && shapes.k != nullptr && shapes.v != nullptr;
}

std::string text_of(const Shapes& shapes, bool causal, bool dropout) {
  auto q = list<int64_t>(*shapes.q, kTensorDimensions), k = list<int64_t>(*shapes.k, kTensorDimensions);
  auto v = list<int64_t>(*shapes.v, kTensorDimensions);
  if (q.size() != 4 || k.size() != 4 || v.size() != 4) return "";
  Text text("attention");
  text.add("direction", shapes.backward ? "backward" : "forward").add("batch", q[0]).add("heads", q[1]);
  text.add("kv_heads", k[1]).add("q_len", q[2]).add("kv_len", shapes.k_transposed ? k[3] : k[2]);
  text.add("head_dim", q[3]).add("v_head_dim", shapes.v_transposed ? v[2] : v[3]);
  text.add("causal", int(causal)).add("dropout", int(dropout));
  text.add("dtype", type_name(scalar<int32_t>(*shapes.q, kTensorType, 0))).add("backend", "cudnn");
  if (find(*shapes.q, kTensorRagged) != nullptr) text.add("ragged", 1);
  return text;
}

}  // namespace

std::string describe_attention(const Node& graph) {
  const Value* operations = find(graph, kGraphOperations);
  if (operations == nullptr) return "";
  Shapes shapes;
  for (auto& operation : operations->nodes) {
    if (operation->type != kSdpaForward && operation->type != kSdpaBackward) continue;
    if (!fused_shapes(*operation, shapes)) return "";
    const Node* modifiers = child(*operation, shapes.backward ? kBackwardSubgraph : kForwardSubgraph);
    Contents inner = look(modifiers != nullptr ? find(*modifiers, kGraphOperations) : nullptr);
    bool dropout = inner.dropout || find(*operation, kForwardDropout) != nullptr;
    return text_of(shapes, inner.causal, dropout);
  }
  Contents contents = look(operations);
  return primitive_shapes(contents, shapes) ? text_of(shapes, contents.causal, contents.dropout) : "";
}

}  // namespace presim::libs::cudnn
