// Describes a cuDNN operation graph as text: a convolution, attention, or the names of its operations with the bytes
// of its inputs and outputs.
#include <set>

#include "libs/common.h"
#include "libs/cudnn_backend.h"

namespace presim::libs::cudnn {
namespace {

struct Direction {
  int type;
  const char* name;
  int image, filter, output, descriptor;  // attributes
};
constexpr Direction kDirections[] = {
    {kConvForward, "fprop", 704, 703, 705, 702},
    {kConvBackwardData, "dgrad", 710, 709, 711, 708},
    {kConvBackwardFilter, "wgrad", 716, 715, 717, 714},
};

const Direction* direction_of(const Node& operation) {
  for (const Direction& direction : kDirections)
    if (operation.type == direction.type) return &direction;
  return nullptr;
}

struct NamedType {
  const char* name;
  int bits;
};

NamedType named_type(int type) {
  static constexpr NamedType kTypes[] = {
      {"f32", 32}, {"f64", 64}, {"f16", 16},  {"i8", 8},   {"i32", 32}, {"i8x4", 32}, {"u8", 8},   {"u8x4", 32},
      {"i8x32", 256}, {"bf16", 16}, {"i64", 64}, {"bool", 8}, {"e4m3", 8}, {"e5m2", 8}, {"f32", 32}, {"e8m0", 8},
      {"e2m1", 4}, {"i4", 4}, {"u4", 4}, {"u32", 32}, {"c64", 64}, {"c128", 128},
  };
  constexpr int count = sizeof(kTypes) / sizeof(kTypes[0]);
  return type >= 0 && type < count ? kTypes[type] : NamedType{"unknown", 8};
}

const std::vector<std::shared_ptr<Node>>& operations(const Node& graph) {
  static const auto* none = new std::vector<std::shared_ptr<Node>>;
  const Value* value = find(graph, kGraphOperations);
  return value != nullptr ? value->nodes : *none;
}

// In channels-last memory channels have stride 1, if an image has more than one point.
bool channels_last(const std::vector<int64_t>& sizes, const std::vector<int64_t>& strides) {
  if (strides.size() < 3 || sizes.size() != strides.size()) return false;
  int64_t points = 1;
  for (size_t i = 2; i < sizes.size(); ++i) points *= sizes[i];
  return strides[1] == 1 && sizes[1] > 1 && points > 1;
}

std::string convolution(const Node& operation, const Direction& direction, int64_t engine, const std::string& fused) {
  const Node *image = child(operation, direction.image), *filter = child(operation, direction.filter);
  const Node *output = child(operation, direction.output), *shape = child(operation, direction.descriptor);
  if (image == nullptr || filter == nullptr || output == nullptr || shape == nullptr) return "";
  auto x = list<int64_t>(*image, kTensorDimensions), w = list<int64_t>(*filter, kTensorDimensions);
  auto y = list<int64_t>(*output, kTensorDimensions);
  if (x.size() < 3 || w.size() != x.size() || y.size() != x.size() || w[1] == 0) return "";
  auto strides = list<int64_t>(*shape, kConvStrides), pads = list<int64_t>(*shape, kConvPaddings);
  auto dilations = list<int64_t>(*shape, kConvDilations);
  int spatial = int(x.size()) - 2, type = scalar<int32_t>(*image, kTensorType, 0);
  bool tf32 = type == 0 && engine == 0;
  Text text("conv");
  text.add("direction", direction.name).add("n", x[0]).add("c", x[1]).add("k", w[0]);
  text.add("input", &x[2], spatial).add("filter", &w[2], spatial).add("output", &y[2], spatial);
  text.add("stride", strides.data(), int(strides.size())).add("pad", pads.data(), int(pads.size()));
  text.add("dilation", dilations.data(), int(dilations.size())).add("groups", x[1] / w[1]);
  text.add("dtype", type_name(type));
  text.add("compute", tf32 ? "tf32" : type_name(scalar<int32_t>(*shape, kConvCompute, 0)));
  text.add("layout", channels_last(x, list<int64_t>(*image, kTensorStrides)) ? "nhwc" : "nchw");
  if (!fused.empty()) text.add("fused", fused);
  return text;
}

const char* operation_name(int type) {
  switch (type) {
    case kPointwiseOperation: return "pointwise";
    case 14: return "gen_stats";
    case kMatmulOperation: return "matmul";
    case 20: return "bn_finalize";
    case 22: return "reduction";
    case 23: return "bn_bwd_weights";
    case 25: return "resample_fwd";
    case 26: return "resample_bwd";
    case 27: return "concat";
    case 29: return "norm_forward";
    case 30: return "norm_backward";
    case 31: return "reshape";
    case kRngOperation: return "rng";
    case 36: return "block_scale_quantize";
    case 37: return "block_scale_dequantize";
    case 42: return "moe_grouped_matmul";
    case kSdpaForward: return "sdpa_forward";
    case kSdpaBackward: return "sdpa_backward";
    case kBandMask: return "band_mask";
    case kSoftmaxOperation: return "softmax";
    case 46: return "transpose";
    case 48: return "moe_grouped_matmul_bwd";
    default: break;
  }
  for (const Direction& direction : kDirections)
    if (type == direction.type) return direction.name;
  return "operation";
}

// Each tensor in memory is read or written once, even if several operations name it.
int64_t bytes_touched(const Node& graph) {
  std::set<const Node*> tensors;
  int64_t bytes = 0;
  for (auto& operation : operations(graph)) {
    for (auto& [attribute, value] : operation->values) {
      for (auto& node : value.nodes) {
        if (node->type != kTensor || !tensors.insert(node.get()).second) continue;
        if (scalar<bool>(*node, kTensorVirtual, false)) continue;
        int64_t elements = 1;
        for (int64_t size : list<int64_t>(*node, kTensorDimensions)) elements *= size;
        bytes += elements * type_bits(scalar<int32_t>(*node, kTensorType, 0)) / 8;
      }
    }
  }
  return bytes;
}

std::string names(const Node& graph, const Node* except) {
  std::string joined;
  for (auto& operation : operations(graph))
    if (operation.get() != except) joined += (joined.empty() ? "" : "+") + std::string(operation_name(operation->type));
  return joined;
}

}  // namespace

const char* type_name(int type) { return named_type(type).name; }
int type_bits(int type) { return named_type(type).bits; }

bool allows_tf32(const Node& graph) {
  for (auto& operation : operations(graph)) {
    const Direction* direction = direction_of(*operation);
    const Node* image = direction != nullptr ? child(*operation, direction->image) : nullptr;
    if (image != nullptr) return scalar<int32_t>(*image, kTensorType, 0) == 0;
  }
  return false;
}

std::string describe(const Node& graph, int64_t engine) {
  std::string attention = describe_attention(graph);
  if (!attention.empty()) return attention;
  for (auto& operation : operations(graph)) {
    const Direction* direction = direction_of(*operation);
    if (direction == nullptr) continue;
    std::string text = convolution(*operation, *direction, engine, names(graph, operation.get()));
    if (!text.empty()) return text;
  }
  Text text("cudnn_graph");
  text.add("ops", names(graph, nullptr)).add("bytes", bytes_touched(graph));
  return text;
}

}  // namespace presim::libs::cudnn
