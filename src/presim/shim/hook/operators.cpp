// A callback in PyTorch's dispatcher that tells the recorder, at every launch, which operator asked for it.
//
// PyTorch calls `operator_begins` before an operator, an autograd node or a named range runs, and `operator_ends`
// after it, on the thread that runs it; they nest. Records appended in between carry the operator's index only once
// it has ended, because only then its outputs are known. An operator that launched nothing costs no text.
//
// A forward operator and the autograd node that differentiates it share a sequence number. It is remembered with the
// module scope of the forward operator, which gives backward work its module without a hook on any tensor.
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <atomic>
#include <cstring>

#include "describe.h"
#include "operators.h"
#include "recorder.h"

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
};

// A named range that is open. The operator that opens one ends before the range does, so ranges do not nest with
// operators, and each carries its own state.
struct Range : at::ObserverContext {
  Phase saved_phase = Phase::Other;
  int32_t saved_range = -1;
  bool optimizer = false;
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
  int32_t scope = -1;
};
constexpr size_t kRemembered = 1 << 20;
ScopeOf* forward_scopes() {
  static ScopeOf* table = new ScopeOf[kRemembered];
  return table;
}

bool starts_with(const char* text, const char* prefix) { return std::strncmp(text, prefix, std::strlen(prefix)) == 0; }

void remember_scope(int64_t sequence, int32_t scope) {
  if (sequence >= 0) forward_scopes()[sequence & (kRemembered - 1)] = {sequence, scope};
}

// Returns whether it changed the phase.
bool forward_operator_begins(const at::RecordFunction& fn, Context& context, Thread& thread, bool differentiable) {
  Phase before = context.phase;
  bool records_graph = at::GradMode::is_enabled();
  if (thread.in_backward && records_graph && context.phase == Phase::Backward) context.phase = Phase::Recompute;
  if (!thread.in_backward && differentiable && context.phase == Phase::Other) context.phase = Phase::Forward;
  if (records_graph) remember_scope(fn.seqNr(), context.scope);
  return context.phase != before;
}

void backward_node_begins(const at::RecordFunction& fn, Context& context, Thread& thread) {
  thread.in_backward = true;
  context.phase = Phase::Backward;
  if (fn.seqNr() < 0) return;
  const ScopeOf& known = forward_scopes()[fn.seqNr() & (kRemembered - 1)];
  if (known.sequence == fn.seqNr()) context.scope = known.scope;
}

std::unique_ptr<at::ObserverContext> range_begins(const at::RecordFunction& fn, Context& context, Thread& thread) {
  auto range = std::make_unique<Range>();
  range->saved_phase = context.phase;
  range->saved_range = thread.range;
  range->optimizer = starts_with(fn.name(), "Optimizer.step#");
  if (range->optimizer) context.phase = Phase::Optimizer;
  thread.range = intern(describe_range(fn.name()));
  return range;
}

void range_ends(at::ObserverContext* opened, Context& context, Thread& thread) {
  auto* range = static_cast<Range*>(opened);
  if (range == nullptr) return;  // began before the hook was installed
  if (range->optimizer) context.phase = range->saved_phase;
  thread.range = range->saved_range;
}

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& fn) {
  Context& context = presim::context();
  Thread& thread = hook::thread();
  if (fn.scope() == at::RecordScope::USER_SCOPE) return range_begins(fn, context, thread);
  Frame frame{context.op_records.size(), thread.arena.size(), context.scope, context.phase, true, thread.in_backward};
  if (fn.scope() == at::RecordScope::FUNCTION) {
    ++context.op_depth;
    bool differentiable = describe_inputs(fn, thread.arena);
    frame.restores = forward_operator_begins(fn, context, thread, differentiable);
  } else {
    backward_node_begins(fn, context, thread);
  }
  thread.frames.push_back(frame);
  return nullptr;
}

void claim_records(const at::RecordFunction& fn, Context& context, const Frame& frame, Arena& arena) {
  if (context.op_records.size() == frame.first_record) return;
  describe_outputs(fn, arena);
  static std::atomic<int64_t> calls{0};
  int32_t id = operator_id(fn, arena.data() + frame.description, arena.size() - frame.description);
  int64_t call = ++calls;
  for (size_t i = frame.first_record; i < context.op_records.size(); ++i) {
    Record* record = record_at(context.op_records[i]);
    if (record == nullptr) continue;
    record->op = id;
    if (record->kind == Kind::Work) record->value = call;  // tells the launches of one call from the next call's
  }
  context.op_records.resize(frame.first_record);
}

void operator_ends(const at::RecordFunction& fn, at::ObserverContext* opened) {
  Context& context = presim::context();
  Thread& thread = hook::thread();
  if (fn.scope() == at::RecordScope::USER_SCOPE) return range_ends(opened, context, thread);
  if (thread.frames.empty()) return;  // began before the hook was installed
  Frame frame = thread.frames.back();
  thread.frames.pop_back();
  if (fn.scope() == at::RecordScope::FUNCTION) {
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

int32_t current_range() { return thread().range; }

bool in_backward() { return thread().in_backward; }

void install_operator_callback() {
  at::addGlobalCallback(at::RecordFunctionCallback(operator_begins, operator_ends)
                            .needsInputs(true)
                            .needsOutputs(true)
                            .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                                     at::RecordScope::USER_SCOPE}));
}

}  // namespace presim::hook
