#include "plan.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstring>

#include "tensors.h"
#include "values.h"

namespace presim::hook::values {
namespace {

constexpr int kMostFailures = 8;  // an exception costs 0.1 ms

// Isolates our operators from the program's modes, autograd, autocast and warnings.
struct Apart {
  at::RecordFunctionGuard unobserved{false};
  c10::impl::ForceDispatchKeyGuard plain_kernels{
      c10::default_included_set, c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView};
  struct Silent : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  } silent;
  c10::WarningUtils::WarningHandlerGuard unwarned{&silent};
};

// Draws from a separate generator, so that the program's random numbers do not change.
class Drawing {
 public:
  explicit Drawing(Plan& plan) {
    if (!plan.op->random) return;
    at::Generator own = at::detail::createCPUGenerator(plan.seed);
    const auto& schema = plan.op->handle->schema();
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      if (schema.arguments()[i].name() != "generator") continue;
      plan.arguments[i] = own;
      return;
    }
    program_ = at::detail::getDefaultCPUGenerator();
    std::lock_guard<std::mutex> lock(program_.mutex());
    state_ = program_.get_state();
    program_.set_current_seed(plan.seed);
  }
  ~Drawing() {
    if (!program_.defined()) return;
    std::lock_guard<std::mutex> lock(program_.mutex());
    program_.set_state(state_);
  }

 private:
  at::Generator program_;
  at::Tensor state_;
};

at::Tensor argument_of(const torch::jit::Stack& arguments, const Target& target) {
  if (target.item < 0) return arguments[target.argument].toTensor();
  return arguments[target.argument].toTensorList().get(size_t(target.item));
}

at::Tensor widened(const at::Tensor& tensor) {
  if (!tensor.defined()) return tensor;
  switch (tensor.scalar_type()) {
    case at::kHalf:
    case at::kBFloat16: return tensor.to(at::kFloat);
    case at::kInt:
    case at::kLong: return tensor.to(at::kDouble);
    default: return tensor;
  }
}

// Converts types without a CPU kernel to wider ones.
void widen(torch::jit::Stack& arguments) {
  for (c10::IValue& value : arguments) {
    if (value.isTensor()) value = widened(value.toTensor());
  }
}

void call_kernel(Plan& plan, torch::jit::Stack arguments) {
  for (Target& target : plan.targets) target.copy = argument_of(arguments, target);
  if (plan.op->stand_in != nullptr) plan.op->stand_in->adapt(arguments);
  plan.op->computed_by->callBoxed(&arguments);
  plan.arguments = std::move(arguments);
}

bool try_kernel(Plan& plan, torch::jit::Stack arguments) {
  try {
    call_kernel(plan, arguments);
    return true;
  } catch (const std::exception& error) {
    if (std::strstr(error.what(), "not implemented for") == nullptr) return false;
  }
  try {
    widen(arguments);
    call_kernel(plan, std::move(arguments));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

bool write_place(const Place& place, const at::Tensor& result, uint8_t origin) {
  if (!place.view.defined()) return !result.defined() || result.numel() == 0;
  if (!result.defined()) return false;
  if (place.view.sizes() != result.sizes()) return false;
  if (place.on_device || place.view.data_ptr() != result.data_ptr()) place.view.copy_(result);
  if (place.on_device) know(place.view, origin);
  return true;
}

bool same_place(const Place& a, const Place& b) {
  return a.view.defined() && b.view.defined() && a.view.data_ptr() == b.view.data_ptr();
}

bool draws_several(const Plan& plan) {
  return plan.op->name == "aten::multinomial" && plan.arguments[1].isInt() && plan.arguments[1].toInt() > 1;
}

bool is_answerable(const Place& place) { return place.on_device && place.view.defined() && small(place.view); }

void answer_place(const Place& place, Rule rule, const Call& call) {
  if (is_answerable(place) && values::origin(place.view) == kNobody) answer(place.view, rule, call);
}

}  // namespace

void Plan::clear() {
  arguments.clear();
  inputs.clear();
  targets.clear();
  call = {};
  evaluates = captured = reads = computed = within_loss = expects = false;
}

void collect(const c10::IValue& value, std::vector<Place>& places) {
  auto add = [&places](const at::Tensor& tensor) {
    bool usable = plain(tensor);
    places.push_back({usable && tensor.is_cuda() ? host_view(tensor) : usable ? tensor : at::Tensor(),
                      usable && tensor.is_cuda()});
  };
  if (value.isTensor()) return add(value.toTensor());
  if (value.isTensorList()) {
    for (const at::Tensor& tensor : value.toTensorVector()) add(tensor);
  }
}

uint8_t origin_of_inputs(const Plan& plan) {
  // Among equal values the policy chooses. Several draws at once follow the probabilities, because beam sampling needs
  // possible tokens.
  bool chooses = plan.op->rule == Rule::Indices && !draws_several(plan);
  uint8_t greatest = kComputed;
  for (const at::Tensor& input : plan.inputs) {
    uint8_t found = values::origin(input);
    if (found == kNobody || (chooses && found == kNumber)) return kNobody;
    greatest = std::max(greatest, found);
  }
  return greatest;
}

void copy_targets(Plan& plan) {
  Apart apart;
  for (const Target& target : plan.targets) {
    const at::Tensor& view = target.place.view;
    at::Tensor copy = target.overwrites ? at::empty_like(view) : view.clone();
    c10::IValue& argument = plan.arguments[target.argument];
    if (target.item < 0) {
      argument = copy;
      continue;
    }
    if (target.item == 0) argument = argument.toTensorList().copy();  // a plan may be a copy of another
    argument.toTensorList().set(size_t(target.item), copy);
  }
}

bool compute(Plan& plan) {
  if (plan.op->failures.load(std::memory_order_relaxed) >= kMostFailures) return false;
  Apart apart;
  Drawing drawing(plan);
  plan.computed = try_kernel(plan, plan.arguments);
  if (!plan.computed) ++plan.op->failures;
  return plan.computed;
}

bool write_results(Plan& plan, const std::vector<Place>& outputs) {
  Apart apart;
  std::vector<Place> results;
  for (const c10::IValue& value : plan.arguments) collect(value, results);
  bool own_extras = plan.op->stand_in != nullptr && results.size() < outputs.size();  // a library's, for its backward
  if (results.size() != outputs.size() && !own_extras) return false;
  bool fits = true;
  for (size_t i = results.size(); i < outputs.size(); ++i) {
    if (outputs[i].view.defined()) fits &= write_place(outputs[i], at::zeros_like(outputs[i].view), plan.origin);
  }
  for (size_t i = 0; i < results.size(); ++i) fits &= write_place(outputs[i], results[i].view, plan.origin);
  for (const Target& target : plan.targets) {  // those that the operator does not return
    bool returned = std::any_of(outputs.begin(), outputs.end(),
                                [&target](const Place& output) { return same_place(output, target.place); });
    bool resized = target.copy.sizes() != target.place.view.sizes();
    if (!returned && !resized) fits &= write_place(target.place, target.copy, plan.origin);
  }
  return fits;
}

bool is_loss(const Plan& plan) { return plan.op->rule == Rule::Loss && !plan.within_loss; }

void answer_loss(const Plan& plan, const std::vector<Place>& outputs) {
  Apart apart;
  if (outputs.empty() || !is_answerable(outputs[0])) return;  // its other results (a sum of weights) are not losses
  if (values::origin(outputs[0].view) != kComputed) answer(outputs[0].view, Rule::Loss, plan.call);
}

void answer_unknown(const Plan& plan, const std::vector<Place>& outputs) {
  Apart apart;
  Rule rule = plan.op->rule == Rule::Loss ? Rule::Number : plan.op->rule;
  for (const Place& output : outputs) answer_place(output, rule, plan.call);
  for (const Target& target : plan.targets) answer_place(target.place, rule, plan.call);
}

}  // namespace presim::hook::values
