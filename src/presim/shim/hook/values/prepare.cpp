#include "prepare.h"

#include <ATen/Context.h>
#include <c10/cuda/CUDAFunctions.h>

#include <algorithm>
#include <atomic>

#include "tensors.h"
#include "values.h"

namespace presim::hook::values {
namespace {

void see_tensor(const at::Tensor& tensor, Seen& seen) {
  if (!tensor.defined()) return;
  if (!plain(tensor)) {
    seen.wrapped |= tensor.unsafeGetTensorImpl()->is_python_dispatch();
    seen.all_small = false;
    seen.device |= tensor.is_cuda();
    return;
  }
  seen.device |= tensor.is_cuda();
  seen.all_small &= small(tensor);
}

int64_t choices_of(const Operator& op, Inputs inputs) {
  if (!inputs[0].isTensor()) return 0;
  const at::Tensor& self = inputs[0].toTensor();
  if (!self.is_floating_point() || self.dim() == 0) return 0;
  if (op.dim >= 0) {
    const c10::IValue& dim = inputs[size_t(op.dim)];
    if (!dim.isInt()) return self.numel();
    int64_t place = dim.toInt() < 0 ? dim.toInt() + self.dim() : dim.toInt();
    return place >= 0 && place < self.dim() ? self.size(place) : 0;
  }
  return op.name == "aten::multinomial" ? self.size(-1) : self.numel();
}

double terms_of(const Operator& op, Inputs inputs) {
  constexpr int64_t kSum = 2;
  if (op.rule == Rule::Norm) return inputs[0].isTensorList() ? std::max<double>(1, inputs[0].toListRef().size()) : 1;
  if (op.reduction < 0 || !inputs[size_t(op.reduction)].isInt() || inputs[size_t(op.reduction)].toInt() != kSum) return 1;
  const c10::IValue& counted = inputs[op.target >= 0 ? size_t(op.target) : 0];
  if (!counted.isTensor()) return 1;
  const at::Tensor& target = counted.toTensor();
  if (op.name == "aten::kl_div" && target.dim() > 0) return double(target.size(0));  // "batchmean" divides by these
  return double(target.numel());
}

at::Tensor as_host(const at::Tensor& tensor, std::vector<at::Tensor>& known) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  at::Tensor view = host_view(tensor);
  known.push_back(view);
  return view;
}

c10::IValue as_host(const c10::IValue& value, std::vector<at::Tensor>& known) {
  if (value.isTensor()) return as_host(value.toTensor(), known);
  if (value.isDevice()) return value.toDevice().is_cuda() ? c10::IValue(c10::Device(c10::kCPU)) : value;
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& tensor : value.toListRef()) list.push_back(as_host(tensor.toTensor(), known));
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& item : value.toListRef()) {
      list.push_back(item.isTensor() ? std::optional<at::Tensor>(as_host(item.toTensor(), known)) : std::nullopt);
    }
    return list;
  }
  if (value.isList() && !value.toListRef().empty() && value.toListRef()[0].isNone()) {
    return c10::List<std::optional<at::Tensor>>(std::initializer_list<std::optional<at::Tensor>>{});
  }
  return value;
}

}  // namespace

Seen see(Inputs inputs) {
  Seen seen;
  for (const c10::IValue& value : inputs) {
    if (value.isTensor()) {
      see_tensor(value.toTensor(), seen);
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isTensor()) see_tensor(item.toTensor(), seen);
        if (seen.device && !seen.all_small) break;  // there may be hundreds of parameters
      }
    } else if (value.isDevice()) {
      seen.device |= value.toDevice().is_cuda();
    }
  }
  return seen;
}

void prepare_call(Plan& plan, Inputs inputs) {
  const Operator& op = *plan.op;
  if (op.counts && op.dim >= 0 && inputs[size_t(op.dim)].isInt()) {
    int64_t dims = inputs[0].toTensor().dim(), dim = inputs[size_t(op.dim)].toInt();
    plan.call.count_along = dim < 0 ? dim + dims : dim;
  }
  if (plan.op->rule == Rule::Indices) plan.call.choices = choices_of(*plan.op, inputs);
  if (plan.op->rule == Rule::Loss || plan.op->rule == Rule::Norm) plan.call.terms = terms_of(*plan.op, inputs);
}

void add_targets(Plan& plan, Inputs inputs) {
  for (const Written& written : plan.op->written) {
    if (written.only_if >= 0 && inputs[size_t(written.only_if)].isBool() && !inputs[size_t(written.only_if)].toBool()) continue;
    const c10::IValue& value = inputs[written.argument];
    int item = 0;
    auto add = [&](const at::Tensor& tensor, int place) {
      if (!plain(tensor)) return;
      bool on_device = tensor.is_cuda();
      if (!plan.evaluates && on_device && !plan.captured) forget(tensor);
      if (!plan.evaluates && !plan.captured && !small(tensor)) return;
      plan.targets.push_back({{on_device ? host_view(tensor) : tensor, on_device}, written.argument, place,
                              written.overwrites, {}});
    };
    if (value.isTensor()) add(value.toTensor(), -1);
    if (value.isTensorList()) {
      for (const c10::IValue& tensor : value.toListRef()) add(tensor.toTensor(), item++);
    }
  }
}

void add_arguments(Plan& plan, Inputs inputs) {
  std::vector<at::Tensor> ignored;
  for (size_t i = 0; i < inputs.size(); ++i) {
    bool overwritten = std::any_of(plan.op->written.begin(), plan.op->written.end(),
                                   [i](const Written& w) { return w.argument == i && w.overwrites; });
    plan.arguments.push_back(as_host(inputs[i], overwritten ? ignored : plan.inputs));
  }
}

uint64_t seed_of_draw(Inputs inputs, bool captured) {
  static std::atomic<uint64_t> drawn{0};
  at::Generator generator = at::globalContext().defaultGenerator(c10::Device(c10::kCUDA, c10::cuda::current_device()));
  for (const c10::IValue& value : inputs) {
    if (value.isGenerator() && value.toGenerator().device().is_cuda()) generator = value.toGenerator();
  }
  uint64_t offset = captured ? ++drawn : generator.get_offset();
  return generator.current_seed() * 0x9e3779b97f4a7c15ull + offset * 0xbf58476d1ce4e5b9ull;
}

}  // namespace presim::hook::values
