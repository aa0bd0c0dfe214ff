// Computes small tensors on the CPU, in the memory behind the emulated device addresses.
//
// The operator itself runs unchanged. When it has ended, the CPU kernel of the same operator runs on the same (known,
// small) inputs, and the results are written to the operator's outputs. Written arguments are copied before, because
// inner operators may also write them. Results that cannot be computed become unknown; small ones come from a policy
// (policies.cpp).
//
// Operators that count on the device and read the count while they run (nonzero) are computed before they run, and the
// copy that reads the count gets it (counts.h, core/transfer.cpp).
//
// During stream capture nothing is computed; it happens at each replay, with the values of that replay.
#include "evaluate.h"

#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <deque>

#include "counts.h"
#include "own_time.h"
#include "plan.h"
#include "prepare.h"
#include "reads.h"
#include "tensors.h"
#include "values.h"

namespace presim::hook::values {
namespace {

// Plans of this thread's open operators: they nest, and their memory is reused.
struct Open {
  std::deque<Plan> plans;
  size_t depth = 0;
  int reading = 0;  // copies to the host, which may contain other copies
  int losses = 0;   // losses, which may consist of others
};

Open& open() {
  static thread_local auto* state = new Open;
  return *state;
}

Plan* take(Operator& op) {
  Open& state = open();
  if (state.depth == state.plans.size()) state.plans.emplace_back();
  Plan& plan = state.plans[state.depth++];
  plan.clear();
  plan.op = &op;
  return &plan;
}

void forget_targets(const Plan& plan) {
  for (const Target& target : plan.targets) {
    if (target.place.on_device) forget(target.place.view);
  }
}

// A loss whose kernel adds to a result that it has zeroed by an operator, as nll_loss2d_forward does: zero is not it.
void forget_partial_loss(const Plan& plan, const std::vector<Place>& outputs) {
  if (plan.op->rule != Rule::Loss || plan.op->treatment != Treatment::Evaluate) return;
  for (const Place& output : outputs) {
    if (output.on_device && output.view.defined()) forget(output.view);
  }
}

void run(Plan& plan, const std::vector<Place>& outputs) {
  bool done = plan.evaluates && (plan.computed || compute(plan)) && write_results(plan, outputs);
  if (!done && plan.evaluates) forget_targets(plan);
  if (!done) forget_partial_loss(plan, outputs);
  if (is_loss(plan)) answer_loss(plan, outputs);
  if (!done) answer_unknown(plan, outputs);
}

struct Replay {
  Plan plan;
  std::vector<Place> outputs;
};

bool all_exist(const Replay& replay) {
  bool inputs = std::all_of(replay.plan.inputs.begin(), replay.plan.inputs.end(), exists);
  bool targets = std::all_of(replay.plan.targets.begin(), replay.plan.targets.end(),
                             [](const Target& t) { return !t.place.on_device || exists(t.place.view); });
  bool outputs = std::all_of(replay.outputs.begin(), replay.outputs.end(), [](const Place& p) {
    return !p.on_device || !p.view.defined() || exists(p.view);
  });
  return inputs && targets && outputs;
}

void replay(void* data) {
  OwnWork working;
  Replay again = *static_cast<Replay*>(data);
  if (!all_exist(again)) return;
  Plan& plan = again.plan;
  plan.origin = plan.evaluates ? origin_of_inputs(plan) : uint8_t(kNobody);
  plan.evaluates = plan.origin != kNobody;
  ++static_cast<Replay*>(data)->plan.seed;
  plan.evaluates ? copy_targets(plan) : forget_targets(plan);
  for (const Place& output : again.outputs) {
    if (output.on_device && output.view.defined()) forget(output.view);
  }
  run(plan, again.outputs);
}

void drop_replay(void* data) { delete static_cast<Replay*>(data); }

void announce_count(Plan& plan, Inputs inputs) {
  OwnWork working;
  plan.evaluates && compute(plan) ? expect_computed(plan) : expect_assumed(plan, inputs);
}

bool any_small(const std::vector<c10::IValue>& values) {
  auto is_small = [](const at::Tensor& tensor) { return tensor.defined() && tensor.is_cuda() && small(tensor); };
  return std::any_of(values.begin(), values.end(), [&](const c10::IValue& value) {
    if (value.isTensor()) return is_small(value.toTensor());
    if (!value.isTensorList()) return false;
    auto list = value.toListRef();
    return std::any_of(list.begin(), list.end(), [&](const c10::IValue& item) { return is_small(item.toTensor()); });
  });
}

bool all_small(const std::vector<Place>& places) {
  return std::all_of(places.begin(), places.end(), [](const Place& p) { return !p.view.defined() || small(p.view); });
}

void begin_read(Operator& op, const at::Tensor& tensor) {
  if (open().reading == 0) read_tensor(op, tensor);
}

void prepare(Plan& plan, Inputs inputs) {
  OwnWork working;
  add_arguments(plan, inputs);
  plan.origin = plan.captured ? uint8_t(kComputed) : origin_of_inputs(plan);
  plan.evaluates = plan.origin != kNobody;
  if (plan.evaluates && plan.op->random) plan.seed = seed_of_draw(inputs, plan.captured);
}

void hold_targets(Plan& plan) {
  OwnWork working;
  copy_targets(plan);
}

void finish(Plan& plan, const std::vector<c10::IValue>& returned) {
  OwnWork working;
  std::vector<Place> outputs;
  for (const c10::IValue& value : returned) collect(value, outputs);
  bool fits = all_small(outputs);
  if (plan.evaluates && !fits) {
    plan.evaluates = false;
    if (!plan.captured) forget_targets(plan);
  }
  if (!plan.captured) return run(plan, outputs);
  at_replay(c10::cuda::getCurrentCUDAStream().stream(), replay, new Replay{plan, outputs}, drop_replay);
}

Plan* begin_coalesce(Operator& op, const at::Tensor& sparse) {
  Plan& plan = *take(op);
  expect_distinct(plan, sparse);
  return &plan;
}

}  // namespace

Plan* begin(const at::RecordFunction& fn) {
  if (!somebody_listens()) return nullptr;
  Operator& op = operator_of(fn);
  auto inputs = fn.inputs();
  if (op.treatment == Treatment::Ignore || inputs.size() != op.arguments) return nullptr;
  if (op.treatment == Treatment::Coalesce) return begin_coalesce(op, inputs[0].toTensor());
  Seen seen = see(inputs);
  if (!seen.device || seen.wrapped || c10::impl::TorchDispatchModeTLS::any_modes_set()) return nullptr;
  if (op.treatment == Treatment::ReadScalar) return begin_read(op, inputs[0].toTensor()), nullptr;
  Plan& plan = *take(op);
  plan.within_loss = open().losses > 0;
  open().losses += op.rule == Rule::Loss;
  plan.reads = op.treatment == Treatment::Copy && inputs[0].toTensor().is_cpu();
  if (plan.reads) begin_read(op, inputs[1].toTensor()), ++open().reading;
  plan.captured = captures(c10::cuda::getCurrentCUDAStream().stream());
  if (op.bounded != Bounded::No && !plan.captured) check_bounds(op.bounded, op.name, inputs);
  plan.evaluates = seen.all_small && op.treatment != Treatment::Answer;
  if (plan.evaluates) prepare(plan, inputs);
  add_targets(plan, inputs);
  prepare_call(plan, inputs);
  if (plan.evaluates && !plan.captured && !plan.targets.empty()) hold_targets(plan);
  if (op.counts && !plan.captured) announce_count(plan, inputs);
  return &plan;
}

void end(const at::RecordFunction& fn, Plan* plan) {
  if (plan->reads) --open().reading;
  open().losses -= plan->op->rule == Rule::Loss;
  stop_expecting(*plan);
  const auto& returned = fn.outputs();
  bool coalesces = plan->op->treatment == Treatment::Coalesce;
  if (coalesces) write_distinct(*plan, returned[0].toTensor());
  if (!coalesces && (plan->evaluates || !plan->targets.empty() || any_small(returned))) finish(*plan, returned);
  plan->clear();
  --open().depth;
}

}  // namespace presim::hook::values
