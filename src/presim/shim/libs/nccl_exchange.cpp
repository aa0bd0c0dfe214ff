#include "libs/nccl_exchange.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <mutex>

#include "core/arrivals.h"
#include "core/own_time.h"
#include "core/shared_devices.h"
#include "core/values.h"
#include "libs/nccl_mail.h"
#include "libs/nccl_pending.h"

namespace presim::libs::nccl {
namespace {

uint64_t& messages(std::vector<uint64_t>& counts, int peer) {
  if (counts.size() <= size_t(peer)) counts.resize(size_t(peer) + 1);
  return counts[size_t(peer)];
}

mail::Key next_key(const Exchange& call) {
  Communicator& comm = *call.comm;
  if (call.shape == Shape::Local || call.alone) return {};
  if (call.shape == Shape::Send) return {comm.identity, messages(comm.sent, call.root)++, comm.rank, call.root};
  if (call.shape == Shape::Recv) return {comm.identity, messages(comm.received, call.root)++, call.root, comm.rank};
  return {comm.identity, comm.collectives++, comm.rank, -1};
}

bool has_arrived(Operation& operation) {
  for (Source& source : operation.sources) {
    if (source.arrived) continue;
    mail::Key key = operation.key;
    key.from = source.rank;
    bool over = mail::over(source.process);  // checked first: it may post and end in between
    source.arrived = mail::take(source.process, key, &source.payload);
    if (!source.arrived && !over) return false;
    source.arrived = true;
    source.origin = source.payload.empty() ? operation.origin : uint8_t(source.payload.back());
    if (!source.payload.empty()) source.payload.pop_back();
    // The rank has ended or called something else; matching the traces reports it.
    if (source.payload.empty()) source.payload = operation.input;
    source.payload.resize(payload_bytes(operation.call));
  }
  return true;
}

void complete(Operation& operation) {
  std::string result;
  if (!operation.outputs.empty() || !operation.dependents.empty()) result = result_of(operation);
  uint8_t origin = origin_of_result(operation);
  for (const Output& output : operation.outputs) {
    std::memcpy(output.to, result.data() + output.from, output.bytes);
    know(output.to, output.bytes, origin);
  }
  for (const Dependent& dependent : operation.dependents) {
    dependent.operation->origin = joined(dependent.operation->origin, origin);
    result.copy(dependent.operation->input.data() + dependent.to, dependent.bytes, dependent.from);
    --dependent.operation->missing;
  }
}

void make_ready(Operation& operation) {
  Exchange& call = operation.call;
  operation.ready = true;
  if (call.op >= kFirstOwnOp) {
    scale_by_own_factor(&operation.input, call.type, call.op);
    call.op = kSum;
  }
  if (operation.posts) mail::post(operation.key, operation.input + char(operation.origin));
  operation.posts = false;
}

void progress() {
  for (auto next = pending().begin(); next != pending().end();) {
    Operation& operation = **next;
    if (operation.missing == 0 && !operation.ready) make_ready(operation);
    bool done = operation.ready && has_arrived(operation);
    if (done) complete(operation);
    next = done ? pending().erase(next) : std::next(next);
  }
}

// The first operation that waits for others gets this rank's own data in their place.
void give_up() {
  for (auto& operation : pending()) {
    if (!operation->ready) continue;
    for (Source& source : operation->sources) {
      if (source.arrived) continue;
      source.arrived = true;
      source.payload = operation->input;
      source.origin = operation->origin;
      source.payload.resize(payload_bytes(operation->call));
    }
    return;
  }
}

constexpr int kPatience = 20;  // rounds of 50 ms without any progress

template <class Condition>
void wait_while(std::unique_lock<std::mutex>& guard, Condition condition) {
  for (int still = 0;;) {
    uint32_t heard = mail::active() ? mail::bell() : 0;
    {
      OwnTime timed;
      progress();
    }
    if (!condition()) break;
    if (!mail::active()) return;  // nothing can be missing
    mail::stuck(heard);
    guard.unlock();
    mail::wait(heard);
    guard.lock();
    still = mail::nobody_moves(heard) ? still + 1 : 0;
    if (still >= kPatience) give_up();
  }
  if (mail::active()) mail::unstuck();
}

void before_read(const void* address, size_t bytes);
void before_write(const void* address, size_t bytes);

void announce() {
  static const Arrivals ours{before_read, before_write};
  bool coming = std::any_of(pending().begin(), pending().end(), [](auto& each) { return !each->outputs.empty(); });
  arrivals().store(coming ? &ours : nullptr, std::memory_order_release);
}

void before_read(const void* address, size_t bytes) {
  if (AsItIs::depth() > 0) return;
  AsItIs ours;
  std::unique_lock guard(pending_lock());
  if (!awaited(address, bytes)) return;
  wait_while(guard, [=] { return awaited(address, bytes); });
  announce();
}

void before_write(const void* address, size_t bytes) {
  if (AsItIs::depth() > 0) return;
  std::lock_guard guard(pending_lock());
  make_void(address, bytes);
  announce();
}

}  // namespace

int& AsItIs::depth() {
  static thread_local int depth = 0;
  return depth;
}

void start(const Exchange& exchange) {
  OwnTime timed;
  AsItIs ours;
  std::lock_guard guard(pending_lock());
  auto operation = std::make_unique<Operation>();
  operation->call = exchange;
  operation->key = next_key(exchange);
  size_t bytes = slice_bytes(exchange);
  if (exchange.send != nullptr) read_input(*operation, exchange.send, bytes * slices_in(exchange));
  if (exchange.origin >= 0) operation->origin = uint8_t(exchange.origin);
  operation->posts = is_needed_elsewhere(exchange);
  operation->sources = sources_of(exchange);
  size_t written = exchange.recv != nullptr ? bytes * slices_out(exchange) : 0;
  if (written > 0) {
    make_void(exchange.recv, written);
    forget(exchange.recv, written);
    operation->outputs.push_back({static_cast<char*>(exchange.recv), written, 0});
  }
  pending().push_back(std::move(operation));
  progress();
  announce();
}

void skip_collective(Communicator& comm) {
  std::lock_guard guard(pending_lock());
  ++comm.collectives;
}

void skip_message(Communicator& comm, int peer, bool sent) {
  std::lock_guard guard(pending_lock());
  ++messages(sent ? comm.sent : comm.received, peer);
}

}  // namespace presim::libs::nccl

// The rank posts its pending contributions where known, and nothing afterwards.
PRESIM_EXPORT void presim_ranks_end() {
  using namespace presim::libs::nccl;
  if (!mail::active()) return presim::close_accounts();
  AsItIs ours;
  std::unique_lock guard(pending_lock());
  auto owes = [] {
    return std::any_of(pending().begin(), pending().end(), [](auto& operation) { return operation->posts; });
  };
  wait_while(guard, owes);
  presim::close_accounts();
  mail::end();
}
