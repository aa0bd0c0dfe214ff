#include "libs/nccl_exchange.h"

#include <algorithm>
#include <list>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "core/arrivals.h"
#include "core/own_time.h"
#include "core/values.h"
#include "libs/nccl_mail.h"

namespace presim::libs::nccl {
namespace {

struct Operation;

// Bytes of a result that are to be put somewhere.
struct Output {
  char* to;
  size_t bytes, from;  // from: offset in the result
};

struct Dependent {
  Operation* operation;
  size_t to, bytes, from;  // to: offset in its input
};

// Where a contribution comes from: a process that runs beside us.
struct Source {
  int32_t rank;     // of the communicator
  int64_t process;  // global rank
  bool arrived = false;
  std::string payload = {};
  uint8_t origin = kNobody;  // who says what that is
};

struct Operation {
  Exchange call;
  mail::Key key;
  std::string input;    // what we contribute
  uint8_t origin = kComputed;  // who says what that is
  int missing = 0;      // parts of it that are results of earlier operations, not there yet
  bool posts = false;   // others need it
  bool ready = false;   // the input is whole
  std::vector<Source> sources;
  std::vector<Output> outputs;  // made void where that memory was written since
  std::vector<Dependent> dependents;
};

std::mutex& lock() {
  static auto* mutex = new std::mutex;
  return *mutex;
}
// In the order of their calls, so that one pass from the front meets results before what depends on them.
std::list<std::unique_ptr<Operation>>& pending() {
  static auto* operations = new std::list<std::unique_ptr<Operation>>;
  return *operations;
}

size_t slice_bytes(const Exchange& call) { return size_t(call.count) * size_t(type_bytes(call.type)); }

bool is_root(const Exchange& call) { return call.root == call.comm->rank; }

// What we contribute, in slices; 0: nothing.
size_t slices_in(const Exchange& call) {
  switch (call.shape) {
    case Shape::AllToAll:
    case Shape::ReduceScatter: return size_t(call.comm->size);
    case Shape::Scatter: return is_root(call) ? size_t(call.comm->size) : 0;
    case Shape::Broadcast: return is_root(call) ? 1 : 0;
    case Shape::Recv: return 0;
    default: return 1;
  }
}

size_t slices_out(const Exchange& call) {
  switch (call.shape) {
    case Shape::AllGather:
    case Shape::AllToAll: return size_t(call.comm->size);
    case Shape::Gather: return is_root(call) ? size_t(call.comm->size) : 0;
    case Shape::Reduce: return is_root(call) ? 1 : 0;
    case Shape::Send: return 0;
    default: return 1;
  }
}

// What another rank contributes.
size_t payload_bytes(const Exchange& call) {
  bool sliced = call.shape == Shape::AllToAll || call.shape == Shape::ReduceScatter || call.shape == Shape::Scatter;
  return slice_bytes(call) * (sliced ? size_t(call.comm->size) : 1);
}

bool others_are_there(const Communicator& comm) { return comm.voices.size() > 1; }

std::vector<Source> sources_of(const Exchange& call) {
  const Communicator& comm = *call.comm;
  bool from_root = call.shape == Shape::Broadcast || call.shape == Shape::Scatter || call.shape == Shape::Recv;
  bool to_root = call.shape == Shape::Reduce || call.shape == Shape::Gather;
  if (call.alone || call.shape == Shape::Send || call.shape == Shape::Local || (to_root && !is_root(call))) return {};
  if (from_root && is_root(call)) return {};
  std::vector<Source> sources;
  for (const Voice& voice : comm.voices) {
    if (voice.global >= 0 && (!from_root || voice.rank == call.root)) sources.push_back({voice.rank, voice.global});
  }
  return sources;
}

bool is_needed_elsewhere(const Exchange& call) {
  if (call.alone || call.shape == Shape::Local || call.shape == Shape::Recv || !others_are_there(*call.comm)) return false;
  bool to_root = call.shape == Shape::Reduce || call.shape == Shape::Gather;
  bool from_root = call.shape == Shape::Broadcast || call.shape == Shape::Scatter;
  if (from_root) return is_root(call);
  if (to_root || call.shape == Shape::Send) return !is_root(call) && is_present(*call.comm, call.root);
  return true;
}

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

// ---- results

std::string_view contribution(const Operation& operation, int rank) {
  const Communicator& comm = *operation.call.comm;
  int voice = operation.call.alone || comm.voice.empty() ? comm.rank : comm.voice[size_t(rank)];
  for (const Source& source : operation.sources) {
    if (source.rank == voice) return source.payload;
  }
  return operation.input;
}

std::string reduced(const Operation& operation, size_t offset) {
  const Exchange& call = operation.call;
  std::vector<Part> parts;
  if (operation.sources.empty()) {
    parts.push_back({operation.input.data() + offset, call.comm->size});
  } else {
    for (const Voice& voice : call.comm->voices) {
      parts.push_back({contribution(operation, voice.rank).data() + offset, voice.ranks});
    }
  }
  return reduce(parts, call.count, call.type, call.op, call.comm->size);
}

// One slice of every rank's contribution.
std::string gathered(const Operation& operation, size_t offset) {
  size_t bytes = slice_bytes(operation.call);
  std::string result;
  result.reserve(bytes * size_t(operation.call.comm->size));
  for (int rank = 0; rank < operation.call.comm->size; ++rank) {
    result.append(contribution(operation, rank).substr(offset, bytes));
  }
  return result;
}

std::string result_of(const Operation& operation) {
  const Exchange& call = operation.call;
  size_t bytes = slice_bytes(call), own = size_t(call.comm->rank) * bytes;
  switch (call.shape) {
    case Shape::AllReduce:
    case Shape::Reduce: return reduced(operation, 0);
    case Shape::ReduceScatter: return reduced(operation, own);
    case Shape::AllGather:
    case Shape::Gather: return gathered(operation, 0);
    case Shape::AllToAll: return gathered(operation, own);
    case Shape::Scatter: return std::string(contribution(operation, call.root).substr(own, bytes));
    case Shape::Broadcast:
    case Shape::Recv: return std::string(contribution(operation, call.root).substr(0, bytes));
    default: return operation.input;
  }
}

// Of what comes of several, the greatest names it; nobody, where nobody knows one of them.
uint8_t joined(uint8_t one, uint8_t other) {
  bool known = one != kNobody && other != kNobody;
  return known ? std::max(one, other) : uint8_t(kNobody);
}

uint8_t origin_of_result(const Operation& operation) {
  Shape shape = operation.call.shape;
  bool only_theirs = !operation.sources.empty() &&
                     (shape == Shape::Broadcast || shape == Shape::Scatter || shape == Shape::Recv);
  uint8_t origin = only_theirs ? uint8_t(kComputed) : operation.origin;
  for (const Source& source : operation.sources) origin = joined(origin, source.origin);
  return origin;
}

// ---- memory

// The part of [to, to + bytes) that lies in an output.
bool overlap(const Output& output, const char* to, size_t bytes, const char** begin, const char** end) {
  *begin = std::max<const char*>(output.to, to);
  *end = std::min<const char*>(output.to + output.bytes, to + bytes);
  return *begin < *end;
}

bool awaited(const void* address, size_t bytes) {
  const char *begin, *end;
  for (const auto& operation : pending())
    for (const Output& output : operation->outputs)
      if (overlap(output, static_cast<const char*>(address), bytes, &begin, &end)) return true;
  return false;
}

void make_void(const void* address, size_t bytes) {
  for (auto& operation : pending()) {
    std::vector<Output> left;
    for (const Output& output : operation->outputs) {
      const char *begin, *end;
      if (!overlap(output, static_cast<const char*>(address), bytes, &begin, &end)) {
        left.push_back(output);
        continue;
      }
      size_t before = size_t(begin - output.to), after = size_t(output.to + output.bytes - end);
      if (before > 0) left.push_back({output.to, before, output.from});
      if (after > 0) left.push_back({const_cast<char*>(end), after, output.from + output.bytes - after});
    }
    operation->outputs = std::move(left);
  }
}

// What memory holds, with what is on its way there added when it comes.
void read_input(Operation& operation, const void* from, size_t bytes) {
  auto* base = static_cast<const char*>(from);
  operation.input.assign(base, bytes);
  std::vector<std::pair<const char*, const char*>> coming;
  for (auto& earlier : pending()) {
    for (const Output& output : earlier->outputs) {
      const char *begin, *end;
      if (!overlap(output, base, bytes, &begin, &end)) continue;
      earlier->dependents.push_back({&operation, size_t(begin - base), size_t(end - begin),
                                     output.from + size_t(begin - output.to)});
      ++operation.missing;
      coming.emplace_back(begin, end);
    }
  }
  std::sort(coming.begin(), coming.end());
  coming.emplace_back(base + bytes, base + bytes);
  for (auto [begin, end] : coming) {
    if (begin > base) operation.origin = joined(operation.origin, origin_of(base, size_t(begin - base)));
    base = std::max(base, end);
  }
}

// ---- progress

bool has_arrived(Operation& operation) {
  for (Source& source : operation.sources) {
    if (source.arrived) continue;
    mail::Key key = operation.key;
    key.from = source.rank;
    bool over = mail::over(source.process);  // asked first: it may post and end in between
    source.arrived = mail::take(source.process, key, &source.payload);
    if (!source.arrived && !over) return false;
    source.arrived = true;
    source.origin = source.payload.empty() ? operation.origin : uint8_t(source.payload.back());
    if (!source.payload.empty()) source.payload.pop_back();
    // Of a rank that is gone, or that called something else: that shows when the traces are put together.
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

// The first operation that waits for others gets what this rank itself holds in their place.
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

constexpr int kPatience = 20;  // rounds of 50 ms in which nobody moved

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
  std::unique_lock guard(lock());
  if (!awaited(address, bytes)) return;
  wait_while(guard, [=] { return awaited(address, bytes); });
  announce();
}

void before_write(const void* address, size_t bytes) {
  if (AsItIs::depth() > 0) return;
  std::lock_guard guard(lock());
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
  std::lock_guard guard(lock());
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
  std::lock_guard guard(lock());
  ++comm.collectives;
}

void skip_message(Communicator& comm, int peer, bool sent) {
  std::lock_guard guard(lock());
  ++messages(sent ? comm.sent : comm.received, peer);
}

}  // namespace presim::libs::nccl

// The rank posts what it still owes to others, as far as that can be known, and nothing after.
PRESIM_EXPORT void presim_ranks_end() {
  using namespace presim::libs::nccl;
  if (!mail::active()) return;
  AsItIs ours;
  std::unique_lock guard(lock());
  auto owes = [] {
    return std::any_of(pending().begin(), pending().end(), [](auto& operation) { return operation->posts; });
  };
  wait_while(guard, owes);
  mail::end();
}
