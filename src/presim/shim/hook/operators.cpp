// A callback in PyTorch's dispatcher that tells the recorder which operator made each launch.
//
// PyTorch calls `operator_begins` before an operator, an autograd node or a named range runs, and `operator_ends` after
// it, on the same thread; they nest. Records in between get the operator's index only when it ends, because only then
// its outputs are known. An operator without launches costs no text.
//
// A forward operator and its autograd node share a sequence number. It is stored with the forward operator's module
// scope, so that backward work gets a module without hooks on tensors.
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

// An open operator or autograd node. These nest strictly within a thread.
struct Frame {
  size_t first_record;  // index into Context.op_records of this operator's first record
  size_t description;   // where its inputs start in Thread.arena
  int32_t saved_scope;
  Phase saved_phase;
  bool restores;        // whether it changed scope or phase
  bool saved_in_backward;
  bool saved_differentiates_again;
  values::Plan* plan = nullptr;  // what remains to be done for its values when it ends
  size_t without_storage = 0;    // bytes of an input without storage
};

// An open named range. The operator that opens it ends before the range does, so ranges do not nest with operators and
// have their own state.
struct Range : at::ObserverContext {
  Phase saved_phase = Phase::Other;
  int32_t saved_range = -1;
};

struct Thread {
  std::vector<Frame> frames;
  Arena arena;
  int32_t range = -1;      // innermost named range (record_function) while no operator is open
  bool in_backward = false;
  bool differentiates_again = false;  // the autograd node runs with create_graph, as torch.func's do
};

Thread& thread() {
  static thread_local Thread* state = new Thread;  // never destroyed, because operators also run during thread exit
  return *state;
}

// Forward operators' scopes by autograd sequence number; the table wraps around after 1 M operators.
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

// Per thread, because recomputed forward operators run on autograd's threads.
ScopeOf& scope_of(int64_t sequence, uint64_t thread) {
  return forward_scopes()[(uint64_t(sequence) + thread * 0x9E3779B97F4A7C15ull) & (kRemembered - 1)];
}

bool starts_with(const char* text, const char* prefix) { return std::strncmp(text, prefix, std::strlen(prefix)) == 0; }

void remember_scope(int64_t sequence, int32_t scope) {
  uint64_t thread = at::RecordFunction::currentThreadId();
  if (sequence >= 0) scope_of(sequence, thread) = {sequence, thread, scope};
}

// Also true between two nodes, where autograd accumulates gradients, and in hooks.
bool autograd_runs() { return torch::autograd::get_current_graph_task_id() != -1; }

// Returns whether it changed the phase.
bool forward_operator_begins(const at::RecordFunction& fn, Context& context, Thread& thread, bool differentiable) {
  Phase before = context.phase;
  bool records_graph = at::GradMode::is_enabled();
  if (starts_with(fn.name(), "profiler::")) return false;  // opens or closes a range, which has its own phase
  if (context.phase == Phase::Other && autograd_runs()) context.phase = Phase::Backward;
  bool recomputes = thread.in_backward && records_graph && !thread.differentiates_again;
  if (recomputes && context.phase == Phase::Backward) context.phase = Phase::Recompute;
  bool between = context.phase == Phase::Other || context.phase == Phase::Optimizer;  // a loss, perhaps in a closure
  if (!thread.in_backward && differentiable && records_graph && between) context.phase = Phase::Forward;
  if (records_graph) remember_scope(fn.seqNr(), context.scope);
  return context.phase != before;
}

void backward_node_begins(const at::RecordFunction& fn, Context& context, Thread& thread) {
  thread.in_backward = true;
  thread.differentiates_again = at::GradMode::is_enabled();
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

// PyTorch's overhead of calling us besides our own code: boxing inputs and outputs, callback bookkeeping.
std::atomic<int64_t> calling_ns{0};
std::atomic<uint64_t> operators_seen{0};

// A kernel on such a tensor accesses memory near address 0; querying its shape is allowed.
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
  Frame frame{context.op_records.size(), thread.arena.size(), context.scope, context.phase, true, thread.in_backward,
              thread.differentiates_again};
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
  // Backwards, with the operator last: a concurrent reader that finds the first record claimed finds all of them
  // claimed.
  for (size_t i = context.op_records.size(); i-- > first;) {
    Record* record = record_at(context.op_records[i]);
    if (record == nullptr) continue;
    if (record->kind == Kind::Work) record->value = call;  // distinguishes this call's launches from the next call's
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
  // TorchScript's fused groups have a name but no tensors: their kernels belong to the enclosing operator.
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
  thread.differentiates_again = frame.saved_differentiates_again;
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

// A small network on the CPU: operators with as many inputs and outputs as real ones, and with gradients. No backward
// pass: it would start autograd's threads, which forked children would lack.
void some_operators() {
  constexpr int kLayers = 24;
  at::Tensor weight = at::zeros({8, 8}).requires_grad_(), scale = at::zeros({8}).requires_grad_(), x = at::zeros({4, 8});
  for (int layer = 0; layer < kLayers; ++layer)
    x = at::add(x, at::gelu(at::linear(at::layer_norm(x, {8}, scale, scale), weight, scale)));
}

// Overhead of all of them beyond our own time, ns: the minimum of several rounds, because other processes may run.
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
