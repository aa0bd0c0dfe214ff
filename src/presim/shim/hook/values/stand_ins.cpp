#include "stand_ins.h"

#include <ATen/core/Tensor.h>

#include <array>
#include <string>
#include <utility>

namespace presim::hook::values {
namespace {

using torch::jit::Stack;

// input, weight, bias, running_mean, running_var, training, factor, epsilon: the same order. cuDNN's extra results are
// its own (`Plan::write_results`).
void keep(Stack&) {}

void batch_norm_backward(Stack& a) {
  c10::List<bool> all{true, true, true};
  a = {a[1], a[0], a[2], a[3], a[4], a[5], a[6], true, a[7], all};  // cuDNN saves the inverse root as "variance"
}

Stack convolution_of(const c10::IValue& input, const c10::IValue& weight, const c10::IValue& bias,
                     const c10::IValue& stride, const c10::IValue& padding, const c10::IValue& dilation,
                     const c10::IValue& groups) {
  c10::List<int64_t> no_output_padding(stride.toIntVector());
  for (size_t i = 0; i < no_output_padding.size(); ++i) no_output_padding.set(i, 0);
  return {input, weight, bias, stride, padding, dilation, false, no_output_padding, groups};
}

void convolution(Stack& a) { a = convolution_of(a[0], a[1], c10::IValue(), a[3], a[2], a[4], a[5]); }

void convolution_transpose(Stack& a) { a = {a[0], a[1], c10::IValue(), a[4], a[2], a[5], true, a[3], a[6]}; }

void depthwise(Stack& a) {
  int64_t channels = a[0].toTensor().size(1);
  a = convolution_of(a[0], a[1], a[3], a[4], a[5], a[6], channels);
}

// A product with another result type: the same product with inputs of that type.
template <size_t kTensors>
void product(Stack& a) {
  auto type = at::ScalarType(a[kTensors].toInt());
  for (size_t i = 0; i < kTensors; ++i) a[i] = a[i].toTensor().to(type);
  a.erase(a.begin() + kTensors);
}

constexpr auto kStandIns = std::to_array<StandIn>({
    {"cudnn_batch_norm", "", "native_batch_norm", keep},
    {"cudnn_batch_norm_backward", "", "native_batch_norm_backward", batch_norm_backward},
    {"cudnn_convolution", "", "convolution", convolution},
    {"cudnn_convolution_transpose", "", "convolution", convolution_transpose},
    {"_conv_depthwise2d", "", "convolution", depthwise},
    {"conv_depthwise3d", "", "convolution", depthwise},
    {"mm", "dtype", "mm", product<2>},
    {"bmm", "dtype", "bmm", product<2>},
    {"addmm", "dtype", "addmm", product<3>},
    {"baddbmm", "dtype", "baddbmm", product<3>},
});

}  // namespace

const StandIn* stand_in_for(std::string_view name, std::string_view overload) {
  for (const StandIn& stand_in : kStandIns) {
    if (name == stand_in.name && overload == stand_in.overload) return &stand_in;
  }
  return nullptr;
}

c10::OperatorHandle handle_of(const StandIn& stand_in) {
  return c10::Dispatcher::singleton().findSchemaOrThrow((std::string("aten::") + stand_in.computed_by).c_str(), "");
}

}  // namespace presim::hook::values
