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

#include <array>
#include <cstring>
#include <unordered_map>

#include "describe.h"
#include "operators.h"
#include "recorder.h"

namespace presim::hook {
namespace {

struct Frame {
  size_t first_record;  // index into Context.op_records where this operator's own begin
  size_t description;   // where its inputs start in Thread.arena
  int32_t saved_scope;
  Phase saved_phase;
  int32_t saved_range;
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

void forward_operator_begins(const at::RecordFunction& fn, Context& context, Thread& thread, bool differentiable) {
  if (fn.seqNr() >= 0 && at::GradMode::is_enabled() && !thread.in_backward) {
    forward_scopes()[fn.seqNr() & (kRemembered - 1)] = {fn.seqNr(), context.scope};
  } else if (thread.in_backward && at::GradMode::is_enabled() && context.phase == Phase::Backward) {
    context.phase = Phase::Recompute;
    if (fn.seqNr() >= 0) forward_scopes()[fn.seqNr() & (kRemembered - 1)] = {fn.seqNr(), context.scope};
  } else if (thread.in_backward && fn.seqNr() >= 0 && context.phase == Phase::Recompute) {
    forward_scopes()[fn.seqNr() & (kRemembered - 1)] = {fn.seqNr(), context.scope};
  }
  if (context.phase == Phase::Other && differentiable) context.phase = Phase::Forward;
}

void backward_node_begins(const at::RecordFunction& fn, Context& context, Thread& thread) {
  thread.in_backward = true;
  context.phase = Phase::Backward;
  if (fn.seqNr() < 0) return;
  const ScopeOf& known = forward_scopes()[fn.seqNr() & (kRemembered - 1)];
  if (known.sequence == fn.seqNr()) context.scope = known.scope;
}

void range_begins(const at::RecordFunction& fn, Context& context, Thread& thread) {
  const char* name = fn.name();
  if (starts_with(name, "Optimizer.step#")) context.phase = Phase::Optimizer;
  thread.range = intern(describe_range(name));
}

std::unique_ptr<at::ObserverContext> operator_begins(const at::RecordFunction& fn) {
  Context& context = presim::context();
  Thread& thread = hook::thread();
  thread.frames.push_back(
      {context.op_records.size(), thread.arena.size(), context.scope, context.phase, thread.range});
  switch (fn.scope()) {
    case at::RecordScope::FUNCTION: {
      ++context.op_depth;
      bool differentiable = describe_inputs(fn, thread.arena);
      forward_operator_begins(fn, context, thread, differentiable);
      break;
    }
    case at::RecordScope::BACKWARD_FUNCTION:
      backward_node_begins(fn, context, thread);
      break;
    case at::RecordScope::USER_SCOPE:
      range_begins(fn, context, thread);
      break;
    default:
      break;
  }
  return nullptr;
}

void claim_records(const at::RecordFunction& fn, Context& context, const Frame& frame, Arena& arena) {
  if (context.op_records.size() == frame.first_record) return;
  describe_outputs(fn, arena);
  int32_t id = operator_id(fn, arena.data() + frame.description, arena.size() - frame.description);
  for (size_t i = frame.first_record; i < context.op_records.size(); ++i) {
    Record* record = record_at(context.op_records[i]);
    if (record != nullptr) record->op = id;
  }
  context.op_records.resize(frame.first_record);
}

void operator_ends(const at::RecordFunction& fn, at::ObserverContext*) {
  Context& context = presim::context();
  Thread& thread = hook::thread();
  if (thread.frames.empty()) return;  // began before the hook was installed
  Frame frame = thread.frames.back();
  thread.frames.pop_back();
  if (fn.scope() == at::RecordScope::FUNCTION) {
    claim_records(fn, context, frame, thread.arena);
    --context.op_depth;
  }
  thread.arena.resize(frame.description);
  context.scope = frame.saved_scope;
  context.phase = frame.saved_phase;
  thread.range = frame.saved_range;
  thread.in_backward = frame.saved_phase == Phase::Backward || frame.saved_phase == Phase::Recompute;
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
