// C interface for the capturing Python process (ctypes).
#include <ATen/core/grad_mode.h>

#include <vector>

#include "collectives.h"
#include "describe.h"
#include "groups.h"
#include "memory.h"
#include "misuse.h"
#include "operators.h"
#include "own_time.h"
#include "recorder.h"
#include "values.h"
#include "values/policies.h"
#include "values/reads.h"
#include "values/tensors.h"

namespace {

struct Saved {
  int32_t scope;
  presim::Phase phase;
};

std::vector<Saved>& open_scopes() {
  static thread_local auto* scopes = new std::vector<Saved>;
  return *scopes;
}

}  // namespace

extern "C" {

PRESIM_API void presim_hook_install() {
  presim::hook::install_operator_callback();
  presim::hook::install_process_group_query();
}

PRESIM_API void presim_hook_track_memory() { presim::hook::install_allocator_tracker(); }

PRESIM_API int32_t presim_intern(const char* text) { return presim::intern(text); }

PRESIM_API int32_t presim_interned() { return presim::interned(); }

// A module's forward pass begins; within backward it is a recomputation.
PRESIM_API void presim_enter_scope(int32_t scope) {
  presim::Context& context = presim::context();
  open_scopes().push_back({context.scope, context.phase});
  context.scope = scope;
  // Optimizers run without gradients; if they are enabled, an optimizer's closure runs the model (Lightning).
  if (context.phase == presim::Phase::Optimizer && !at::GradMode::is_enabled()) return;
  context.phase = presim::hook::in_backward() ? presim::Phase::Recompute : presim::Phase::Forward;
}

// The same for a part of the program that is no forward pass: the phase stays.
PRESIM_API void presim_enter_named(int32_t scope) {
  presim::Context& context = presim::context();
  open_scopes().push_back({context.scope, context.phase});
  context.scope = scope;
}

PRESIM_API void presim_leave_scope() {
  if (open_scopes().empty()) return;
  presim::context().scope = open_scopes().back().scope;
  presim::context().phase = open_scopes().back().phase;
  open_scopes().pop_back();
}

// Assigns the blocks at these addresses to a memory category.
PRESIM_API void presim_retag(const int64_t* addresses, int64_t count, int32_t category) {
  for (int64_t i = 0; i < count; ++i) presim::append(presim::Kind::Retag, 0, addresses[i], category);
}

// Sets the callback for the script's line at a collective.
PRESIM_API void presim_call_sites(presim::CallSite ask) { presim::hook::ask_call_sites(ask); }

// Sets the callback for misuse of CUDA.
PRESIM_API void presim_on_misuse(presim::OnMisuse listener) { presim::listen_to_misuse(listener); }

// Adds nanoseconds spent on observing in Python.
PRESIM_API void presim_add_own_time(int64_t ns) { presim::add_own_time(ns); }

// Called around a kernel launched by Python (Triton): `operator_id` is the interned "op name=… in=… out=…".
PRESIM_API int64_t presim_launch_begins() { return int64_t(presim::hook::launch_begins()); }

PRESIM_API void presim_launch_ends(int64_t first, int32_t operator_id) {
  presim::hook::launch_ends(size_t(first), operator_id);
}

// Enables values: the policies as "key=value" lines, and the callback for values that the program reads.
PRESIM_API void presim_values_enable(const char* policies, presim::hook::values::OnRead on_read) {
  presim::hook::values::configure(policies);
  presim::hook::values::listen(on_read);
}

PRESIM_API void presim_values_route_as(int64_t rank) { presim::hook::values::route_as(uint64_t(rank)); }

PRESIM_API int32_t presim_values_origin(int64_t address, int64_t bytes) {
  return presim::origin_of(reinterpret_cast<void*>(address), size_t(bytes));
}

PRESIM_API void presim_values_know(int64_t address, int64_t bytes, int32_t origin) {
  presim::know(reinterpret_cast<void*>(address), size_t(bytes), uint8_t(origin));
}

// Whether there are few enough elements to compute.
PRESIM_API bool presim_values_small(bool integral, int64_t elements, int64_t element_bytes) {
  return presim::hook::values::small(integral, elements, element_bytes);
}

// A kernel outside PyTorch's operators wrote an uncomputed tensor; `type` is a c10::ScalarType.
PRESIM_API void presim_values_written(int64_t address, int64_t elements, int32_t type, bool is_loss) {
  using namespace presim::hook::values;
  answer_written(reinterpret_cast<void*>(address), elements, c10::ScalarType(type), is_loss ? Rule::Loss : Rule::Number);
}

// A kernel outside PyTorch's operators wrote a map of booleans from rows to the `taken` experts of each.
PRESIM_API void presim_values_route_map(int64_t address, int64_t rows, int64_t choices, int64_t taken) {
  presim::hook::values::answer_route_map(reinterpret_cast<void*>(address), rows, choices, taken);
}

// Calls `run(key)` at this point of each replay of the graph being captured on `stream`; `drop(key)` when it is freed.
PRESIM_API bool presim_values_at_replay(int64_t stream, void (*run)(int64_t), void (*drop)(int64_t), int64_t key) {
  struct Again {
    void (*run)(int64_t);
    void (*drop)(int64_t);
    int64_t key;
  };
  auto once_more = [](void* data) { static_cast<Again*>(data)->run(static_cast<Again*>(data)->key); };
  auto forget = [](void* data) {
    auto* again = static_cast<Again*>(data);
    again->drop(again->key);
    delete again;
  };
  return presim::at_replay(reinterpret_cast<void*>(stream), once_more, new Again{run, drop, key}, forget);
}

PRESIM_API void presim_step(int64_t number) { presim::append(presim::Kind::Step, 0, number); }

// The program asks a data loader's worker for a batch, or waits for it.
PRESIM_API void presim_fetch(int64_t request) { presim::append(presim::Kind::Fetch, 0, request); }
PRESIM_API void presim_fetch_wait(int64_t request) { presim::append(presim::Kind::FetchWait, 0, request); }

}  // extern "C"
