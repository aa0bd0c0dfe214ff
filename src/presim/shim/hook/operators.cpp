// A callback in PyTorch's dispatcher that tells the recorder, at every launch, which operator asked for it.
//
// PyTorch calls `operator_begins` before an operator, an autograd node or a named range runs, and `operator_ends`
// after it, on the thread that runs it; they nest. Records appended in between carry the operator's index only once
// it has ended, because only then its outputs are known. An operator that launched nothing costs no text.
//
// A forward operator and the autograd node that differentiates it share a sequence number. It is remembered with the
// module scope of the forward operator, which gives backward work its module without a hook on any tensor.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/zeros.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "describe.h"
#include "misuse.h"
#include "operators.h"
#include "own_time.h"
#include "recorder.h"
#include "values/evaluate.h"
#include "values/tensors.h"

namespace presim::hook {
namespace {

// An operator or autograd node that is open. These nest strictly within a thread.
struct Frame {
  size_t first_record;  // index into Context.op_records where this operator's own begin
  size_t description;   // where its inputs start in Thread.arena
  int32_t saved_scope;
  Phase saved_phase;
  bool restores;        // it changed scope or phase
  bool saved_in_backward;
  values::Plan* plan = nullptr;  // what is left to do for its values when it ends
  size_t without_storage = 0;    // bytes of an input whose storage has none
};

// A named range that is open. The operator that opens one ends before the range does, so ranges do not nest with
// operators, and each carries its own state.
struct Range : at::ObserverContext {
  Phase saved_phase = Phase::Other;
  int32_t saved_range = -1;
};

struct Thread {
  std::vector<Frame> frames;
  Arena arena;
  int32_t range = -1;      // innermost named range (record_function), where no operator is open
  bool in_backward = false;
};

Thread& thread() {
  static thread_local Thread* state = new Thread;  // never destroyed: operators run during thread exit, too
  return *state;
}

// The scope of forward operators by autograd sequence number; the table forgets after 1 M operators.
struct ScopeOf {
  int64_t sequence = -1;
  uint64_t thread = 0;
  int32_t scope = -1;
};
constexpr size_t kRemembered = 1 << 20;
ScopeOf* forward_scopes() {
  static ScopeOf* table = new ScopeOf[kRemembered];
  return table;
}

// Each thread counts for itself: recomputed forward operators run on autograd's.
ScopeOf& scope_of(int64_t sequence, uint64_t thread) {
  return forward_scopes()[(uint64_t(sequence) + thread * 0x9E3779B97F4A7C15ull) & (kRemembered - 1)];
}

bool starts_with(const char* text, const char* prefix) { return std::strncmp(text, prefix, std::strlen(prefix)) == 0; }

void remember_scope(int64_t sequence, int32_t scope) {
  uint64_t thread = at::RecordFunction::currentThreadId();
  if (sequence >= 0) scope_of(sequence, thread) = {sequence, thread, scope};
}

// Between two nodes, too: where autograd adds gradients up, and in hooks.
bool autograd_runs() { return torch::autograd::get_current_graph_task_id() != -1; }

// Returns whether it changed the phase.
bool forward_operator_begins(const at::RecordFunction& fn, Context& context, Thread& thread, bool differentiable) {
  Phase before = context.phase;
  bool records_graph = at::GradMode::is_enabled();
  if (starts_with(fn.name(), "profiler::")) return false;  // opens or closes a range, which has a phase of its own
  if (context.phase == Phase::Other && autograd_runs()) context.phase = Phase::Backward;
  if (thread.in_backward && records_graph && context.phase == Phase::Backward) context.phase = Phase::Recompute;
  bool between = context.phase == Phase::Other || context.phase == Phase::Optimizer;  // a loss, in a closure maybe
  if (!thread.in_backward && differentiable && records_graph && between) context.phase = Phase::Forward;
  if (records_graph) remember_scope(fn.seqNr(), context.scope);
  return context.phase != before;
}

void backward_node_begins(const at::RecordFunction& fn, Context& context, Thread& thread) {
  thread.in_backward = true;
  context.phase = Phase::Backward;
  if (fn.seqNr() < 0) return;
  const ScopeOf& known = scope_of(fn.seqNr(), fn.forwardThreadId());
  if (known.sequence == fn.seqNr() && known.thread == fn.forwardThreadId()) context.scope = known.scope;
}

std::unique_ptr<at::ObserverContext> range_begins(const at::RecordFunction& fn, Context& context, Thread& thread) {
  auto range = std::make_unique<Range>();
  range->saved_phase = context.phase;
  range->saved_range = thread.range;
  if (starts_with(fn.name(), "Optimizer.step#")) context.phase = Phase::Optimizer;
  if (context.phase == Phase::Other && autograd_runs()) context.phase = Phase::Backward;
  thread.range = intern(describe_range(fn.name()));
  return range;
}

void range_ends(at::ObserverContext* opened, Context& context, Thread& thread) {
  auto* range = static_cast<Range*>(opened);
  if (range == nullptr) return;  // began before the hook was installed
  context.phase = range->saved_phase;
  thread.range = range->saved_range;
}

// What PyTorch spends to call us, besides our own code: boxing inputs and outputs, the bookkeeping of a callback.
std::atomic<int64_t> calling_ns{0};
std::atomic<uint64_t> operators_seen{0};

// A kernel that works on such a tensor reads or writes near address 0; its shape may still be asked for.
size_t bytes_without_storage(const at::RecordFunction& fn) {
  for (const c10::IValue& value : fn.inputs()) {
    if (!value.isTensor()) continue;
    const at::Tensor& tensor = value.toTensor();
    if (!values::plain(tensor) || !tensor.is_cuda() || tensor.numel() == 0) continue;
    if (tensor.unsafeGetTensorImpl()->unsafe_storage().nbytes() == 0) return tensor.nbytes();
  }
  return 0;
}

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& fn) {
  OwnTime observing;
  Context& context = presim::context();
  Thread& thread = hook::thread();
  if (fn.scope() == at::RecordScope::USER_SCOPE) return range_begins(fn, context, thread);
  Frame frame{context.op_records.size(), thread.arena.size(), context.scope, context.phase, true, thread.in_backward};
  if (fn.scope() == at::RecordScope::FUNCTION) {
    ++context.op_depth;
    bool differentiable = describe_inputs(fn, thread.arena);
    frame.restores = forward_operator_begins(fn, context, thread, differentiable);
    frame.plan = values::begin(fn);
    frame.without_storage = bytes_without_storage(fn);
  } else {
    backward_node_begins(fn, context, thread);
  }
  thread.frames.push_back(frame);
  return nullptr;
}

void assign_records(Context& context, size_t first, int32_t id) {
  static std::atomic<int64_t> calls{0};
  int64_t call = ++calls;
  // Backwards, and the operator last: who reads the log meanwhile and finds the first record claimed finds all so.
  for (size_t i = context.op_records.size(); i-- > first;) {
    Record* record = record_at(context.op_records[i]);
    if (record == nullptr) continue;
    if (record->kind == Kind::Work) record->value = call;  // tells the launches of one call from the next call's
    __atomic_store_n(&record->op, id, __ATOMIC_RELEASE);
  }
  context.op_records.resize(first);
}

bool launched(const Context& context, size_t first) {
  return std::any_of(context.op_records.begin() + ptrdiff_t(first), context.op_records.end(), [](uint64_t index) {
    const Record* record = record_at(index);
    return record != nullptr && record->kind == Kind::Work;
  });
}

void claim_records(const at::RecordFunction& fn, Context& context, const Frame& frame, Arena& arena) {
  if (context.op_records.size() == frame.first_record) return;
  if (frame.without_storage > 0 && launched(context, frame.first_record)) {
    report_misuse(std::string(fn.name()) + " is given a tensor of " + of_bytes(frame.without_storage) +
                  " whose storage was resized to nothing, which a GPU answers with an illegal memory access");
  }
  // TorchScript names its fused groups and nothing of their tensors: their kernels go to the operator around them.
  bool says_nothing = fn.inputs().empty() && fn.outputs().empty();
  if (says_nothing && context.op_depth > 1) return;
  describe_outputs(fn, arena);
  int32_t id = operator_id(fn, arena.data() + frame.description, arena.size() - frame.description);
  assign_records(context, frame.first_record, id);
}

void operator_ends(const at::RecordFunction& fn, at::ObserverContext* opened) {
  Context& context = presim::context();
  Thread& thread = hook::thread();
  OwnTime observing;
  if (fn.scope() == at::RecordScope::USER_SCOPE) return range_ends(opened, context, thread);
  operators_seen.fetch_add(1, std::memory_order_relaxed);
  add_own_time(calling_ns.load(std::memory_order_relaxed));
  if (thread.frames.empty()) return;  // began before the hook was installed
  Frame frame = thread.frames.back();
  thread.frames.pop_back();
  if (fn.scope() == at::RecordScope::FUNCTION) {
    if (frame.plan != nullptr) values::end(fn, frame.plan);
    claim_records(fn, context, frame, thread.arena);
    --context.op_depth;
  }
  thread.arena.resize(frame.description);
  thread.in_backward = frame.saved_in_backward;
  if (!frame.restores) return;
  context.scope = frame.saved_scope;
  context.phase = frame.saved_phase;
}

}  // namespace

size_t launch_begins() {
  ++context().op_depth;
  return context().op_records.size();
}

void launch_ends(size_t first, int32_t id) {
  assign_records(context(), first, id);
  --context().op_depth;
}

int32_t current_range() { return thread().range; }

bool in_backward() { return thread().in_backward; }

namespace {

// A small network on the CPU: operators with as many inputs and outputs as a program's, and with gradients. Not
// backward: that would start autograd's threads, and a child that the program forks could not.
void some_operators() {
  constexpr int kLayers = 24;
  at::Tensor weight = at::zeros({8, 8}).requires_grad_(), scale = at::zeros({8}).requires_grad_(), x = at::zeros({4, 8});
  for (int layer = 0; layer < kLayers; ++layer)
    x = at::add(x, at::gelu(at::linear(at::layer_norm(x, {8}, scale, scale), weight, scale)));
}

// What all of them take beyond our own time, ns: the least of several rounds, since others may run between.
int64_t time_operators() {
  constexpr int kRounds = 12;
  int64_t least = INT64_MAX;
  for (int round = 0; round < kRounds; ++round) {
    int64_t counted = own_time();
    uint64_t start = __rdtsc();
    some_operators();
    int64_t took = int64_t(double(__rdtsc() - start) * ns_per_tick());
    least = std::min(least, took - (own_time() - counted));
  }
  return least;
}

}  // namespace

void install_operator_callback() {
  int64_t bare = time_operators();
  at::addGlobalCallback(at::RecordFunctionCallback(operator_begins, operator_ends)
                            .needsInputs(true)
                            .needsOutputs(true)
                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                     at::RecordScope::USER_SCOPE}));
  some_operators();
  uint64_t before = operators_seen;
  some_operators();
  auto operators = int64_t(operators_seen - before);
  calling_ns = std::max<int64_t>(0, (time_operators() - bare) / std::max<int64_t>(operators, 1));
}

}  // namespace presim::hook
