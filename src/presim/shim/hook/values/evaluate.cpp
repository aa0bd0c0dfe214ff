// Computes small tensors for real, on the CPU, in the memory behind the fake device addresses.
//
// The operator itself runs as ever and asks the device for whatever it asks; nothing of that is touched. When it has
// ended, the same operator is run by the CPU's kernel on the same (known, small) inputs, and the results are put where
// its kernels would have put them. Written arguments are copied first, because operators within may write them as
// well. What cannot be computed is marked unknown, and where it is small a policy answers (policies.cpp).
//
// Operators that count on the device and read the count while they run (nonzero) are computed before they run, and the
// copy that reads the count is given it (core/transfer.cpp).
//
// While a stream is captured nothing runs: the same is done at each replay, with the values of that replay.
#include "evaluate.h"

#include <ATen/Context.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>

#include "own_time.h"
#include "plan.h"
#include "tensors.h"
#include "values.h"

namespace presim::hook::values {
namespace {

std::atomic<OnRead> reader{nullptr};

// Plans of the operators that are open on this thread: they nest, and their memory is used again.
struct Open {
  std::deque<Plan> plans;
  size_t depth = 0;
  int reading = 0;  // copies to the host, which may consist of others
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

struct Seen {
  bool device = false;   // something lies on it, or shall
  bool wrapped = false;  // a tensor without memory of its own: its operators come again, inside
  bool all_small = true;
};

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

Seen see(c10::ArrayRef<const c10::IValue> inputs) {
  Seen seen;
  for (const c10::IValue& value : inputs) {
    if (value.isTensor()) {
      see_tensor(value.toTensor(), seen);
    } else if (value.isTensorList() || value.isOptionalTensorList()) {
      for (const c10::IValue& item : value.toListRef()) {
        if (item.isTensor()) see_tensor(item.toTensor(), seen);
        if (seen.device && !seen.all_small) break;  // hundreds of parameters
      }
    } else if (value.isDevice()) {
      seen.device |= value.toDevice().is_cuda();
    }
  }
  return seen;
}

// ---- what policies need to know

int64_t choices_of(const Operator& op, c10::ArrayRef<const c10::IValue> inputs) {
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

double terms_of(const Operator& op, c10::ArrayRef<const c10::IValue> inputs) {
  constexpr int64_t kSum = 2;
  if (op.rule == Rule::Norm) return inputs[0].isTensorList() ? std::max<double>(1, inputs[0].toListRef().size()) : 1;
  if (op.reduction < 0 || !inputs[size_t(op.reduction)].isInt() || inputs[size_t(op.reduction)].toInt() != kSum) return 1;
  const c10::IValue& counted = inputs[op.target >= 0 ? size_t(op.target) : 0];
  return counted.isTensor() ? double(counted.toTensor().numel()) : 1;
}

void prepare_call(Plan& plan, c10::ArrayRef<const c10::IValue> inputs) {
  const Operator& op = *plan.op;
  if (op.counts && op.dim >= 0 && inputs[size_t(op.dim)].isInt()) {
    int64_t dims = inputs[0].toTensor().dim(), dim = inputs[size_t(op.dim)].toInt();
    plan.call.count_along = dim < 0 ? dim + dims : dim;
  }
  if (plan.op->rule == Rule::Indices) plan.call.choices = choices_of(*plan.op, inputs);
  if (plan.op->rule == Rule::Loss || plan.op->rule == Rule::Norm) plan.call.terms = terms_of(*plan.op, inputs);
}

// ---- arguments as the CPU's kernel takes them

void add_targets(Plan& plan, c10::ArrayRef<const c10::IValue> inputs) {
  for (const Written& written : plan.op->written) {
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

void add_arguments(Plan& plan, c10::ArrayRef<const c10::IValue> inputs) {
  std::vector<at::Tensor> ignored;
  for (size_t i = 0; i < inputs.size(); ++i) {
    bool overwritten = std::any_of(plan.op->written.begin(), plan.op->written.end(),
                                   [i](const Written& w) { return w.argument == i && w.overwrites; });
    plan.arguments.push_back(as_host(inputs[i], overwritten ? ignored : plan.inputs));
  }
}

// The program's own seed, and where it is in the sequence: the same draw again gives the same numbers.
uint64_t seed_of_draw(c10::ArrayRef<const c10::IValue> inputs, bool captured) {
  static std::atomic<uint64_t> drawn{0};
  at::Generator generator = at::globalContext().defaultGenerator(c10::Device(c10::kCUDA, c10::cuda::current_device()));
  for (const c10::IValue& value : inputs) {
    if (value.isGenerator() && value.toGenerator().device().is_cuda()) generator = value.toGenerator();
  }
  uint64_t offset = captured ? ++drawn : generator.get_offset();
  return generator.current_seed() * 0x9e3779b97f4a7c15ull + offset * 0xbf58476d1ce4e5b9ull;
}

// ---- what the program reads

void report(const Operator& op, uint8_t origin, const void* first, size_t bytes) {
  OnRead on_read = reader.load(std::memory_order_relaxed);
  if (on_read == nullptr) return;
  int64_t bits = 0;
  std::memcpy(&bits, first, std::min(bytes, sizeof bits));
  on_read(op.name.c_str(), origin, bits);
}

void read_tensor(Operator& op, const at::Tensor& tensor) {
  if (!plain(tensor) || !small(tensor) || tensor.numel() == 0) return;
  OwnWork working;
  at::Tensor view = host_view(tensor);
  uint8_t found = origin(view);
  if (found != kComputed && expected_count() >= 0 && tensor.numel() == 1 && !tensor.is_floating_point()) {
    at::RecordFunctionGuard unobserved(false);
    view.fill_(expected_count());  // the count is its operator's read-back, which reports it
    return;
  }
  if (found == kNobody) {
    answer(view, Rule::Number, {});
    found = origin(view);
  }
  report(op, found, view.const_data_ptr(), size_t(view.element_size()));
}

// ---- now, or at each replay

void forget_targets(const Plan& plan) {
  for (const Target& target : plan.targets) {
    if (target.place.on_device) forget(target.place.view);
  }
}

void run(Plan& plan, const std::vector<Place>& outputs) {
  bool done = plan.evaluates && (plan.computed || compute(plan)) && write_results(plan, outputs);
  if (done) return;
  if (plan.evaluates) forget_targets(plan);
  answer_unknown(plan, outputs);
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

int64_t count_of(const Plan& plan) {
  if (plan.arguments[0].isBool()) return plan.arguments[0].toBool();  // equal
  const at::Tensor& first = plan.arguments[0].toTensor();
  return first.dim() > plan.call.count_along ? first.size(plan.call.count_along) : first.numel();
}

void compute_before(Plan& plan) {
  OwnWork working;
  if (!compute(plan)) return;
  plan.outer_count = expected_count();
  expected_count() = count_of(plan);
  report(*plan.op, plan.origin, &expected_count(), sizeof(int64_t));
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

void prepare(Plan& plan, c10::ArrayRef<const c10::IValue> inputs) {
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

}  // namespace

void enable(OnRead on_read) { reader = on_read; }

Plan* begin(const at::RecordFunction& fn) {
  if (reader.load(std::memory_order_relaxed) == nullptr) return nullptr;
  Operator& op = operator_of(fn);
  auto inputs = fn.inputs();
  if (op.treatment == Treatment::Ignore || inputs.size() != op.arguments) return nullptr;
  Seen seen = see(inputs);
  if (!seen.device || seen.wrapped || c10::impl::TorchDispatchModeTLS::any_modes_set()) return nullptr;
  if (op.treatment == Treatment::ReadScalar) return begin_read(op, inputs[0].toTensor()), nullptr;
  Plan& plan = *take(op);
  plan.reads = op.treatment == Treatment::Copy && inputs[0].toTensor().is_cpu();
  if (plan.reads) begin_read(op, inputs[1].toTensor()), ++open().reading;
  plan.captured = captures(c10::cuda::getCurrentCUDAStream().stream());
  plan.evaluates = seen.all_small && op.treatment != Treatment::Answer;
  if (plan.evaluates) prepare(plan, inputs);
  add_targets(plan, inputs);
  prepare_call(plan, inputs);
  if (plan.evaluates && !plan.captured && !plan.targets.empty()) hold_targets(plan);
  if (plan.evaluates && op.counts && !plan.captured) compute_before(plan);
  return &plan;
}

void end(const at::RecordFunction& fn, Plan* plan) {
  if (plan->reads) --open().reading;
  if (plan->op->counts && plan->computed) expected_count() = plan->outer_count;
  const auto& returned = fn.outputs();
  if (plan->evaluates || !plan->targets.empty() || any_small(returned)) finish(*plan, returned);
  plan->clear();
  --open().depth;
}

}  // namespace presim::hook::values
