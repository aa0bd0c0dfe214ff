// NCCL calls that communicate: each is logged with its message size as in nccl-tests, and small payloads are
// exchanged.
#include <algorithm>

#include "core/own_time.h"
#include "core/process_group.h"
#include "core/values.h"
#include "libs/nccl_exchange.h"
#include "libs/nccl_joins.h"

namespace {
using namespace presim::libs;
using namespace presim::libs::nccl;

enum Kind : int { AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Send, Recv, Gather, Scatter };
constexpr const char* kKinds[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                                  "all_to_all", "send",       "recv",           "gather",    "scatter"};

struct Key {
  int64_t bytes;
  int32_t kind, type, op, comm, peer, per_rank, site, unused = 0;  // no padding
};

std::string describe(const Key& key) {
  Text text("collective");
  text.add("kind", kKinds[key.kind]).add("bytes", key.bytes).add("dtype", type_name(key.type));
  text.add("redop", key.op < kFirstOwnOp ? op_name(key.op) : "premul_sum");
  text.add("comm", key.comm).add("peer", key.peer);
  if (key.site >= 0) text.add("site", key.site);
  if (key.per_rank) text.add("per_rank", 1);  // to be multiplied by the group's size, which the framework knows
  return text;
}

// Collectives with one slice per rank.
bool sliced(Kind kind) {
  return kind == AllGather || kind == ReduceScatter || kind == Gather || kind == Scatter || kind == AllToAll;
}

int32_t call_site() {
  presim::OwnWork observing;
  return presim::current_call_site();
}

// A logged call: its communicator, and whether it became part of a CUDA graph.
struct Logged {
  int status = kInvalidArgument;
  Communicator* comm = nullptr;  // nullptr: no further action
  bool captured = false;
  Join join = {};
};

Logged log(Kind kind, int64_t count, int type, int op, int peer, void* comm, void* stream) {
  Communicator* found = checked(comm);
  if (found == nullptr || type < 0 || type > 11 || count < 0) return {};
  learn_members(*found);
  if (int status = is_in_group() ? kSuccess : check_devices(*found)) return {status};
  if (peer != -1 && found->size > 0 && (peer < 0 || peer >= found->size)) return {};
  if (count == 0 && kind != Send && kind != Recv) return {kSuccess};  // NCCL skips empty collectives but not messages
  int64_t bytes = count * type_bytes(type);
  bool unknown = sliced(kind) && found->size < 0;
  if (sliced(kind) && !unknown) bytes *= found->size;
  int32_t own_op = op >= kFirstOwnOp ? int(kFirstOwnOp) : op;  // factors do not affect time
  Key key{bytes, kind, type, own_op, found->serial, peer, unknown, call_site()};
  bool captured = log_launch(*found, stream, descriptor(key, describe));
  Route route = kind == Send ? Route::Send : kind == Recv ? Route::Receive : Route::Collective;
  return {kSuccess, found, captured, {found, route, peer}};
}

bool others_are_there(const Communicator& comm) { return comm.voices.size() > 1; }

const char* slice_of(const void* buffer, int rank, int64_t bytes) {
  return buffer == nullptr ? nullptr : static_cast<const char*>(buffer) + rank * bytes;
}

// Exchanges now or, on a capturing stream, at every replay of the graph in order.
template <class Move>
int now_or_replayed(const Logged& logged, void* stream, Move move) {
  if (logged.comm == nullptr) return logged.status;
  if (!logged.captured) {
    join(logged.join, stream);
    return move(), logged.status;
  }
  struct Replay {
    Join call;
    Move move;
  };
  auto run = [](void* data) {
    join_at_replay(static_cast<Replay*>(data)->call);
    static_cast<Replay*>(data)->move();
  };
  presim::at_replay(stream, run, new Replay{logged.join, move}, [](void* data) { delete static_cast<Replay*>(data); });
  return logged.status;
}

// Small payloads are exchanged. Larger calls are counted, so that all ranks have the same numbers.
void move_payload(Communicator& comm, Exchange exchange) {
  exchange.comm = &comm;
  int64_t bytes = exchange.count * type_bytes(exchange.type);
  bool sliced_input = exchange.shape == Shape::ReduceScatter || exchange.shape == Shape::AllToAll;
  bool small = comm.size >= 1 && bytes <= kSmallPayload;
  bool gathers = exchange.shape == Shape::AllGather || exchange.shape == Shape::AllToAll || exchange.shape == Shape::Gather;
  if (gathers) small = small && bytes * comm.size <= kSmallResult;
  if (small && sliced_input && (exchange.alone || !others_are_there(comm) || bytes * comm.size > kSmallPayload)) {
    // As if each rank had this rank's data: one slice represents all.
    if (!exchange.alone) skip_collective(comm);
    exchange.alone = true;
    exchange.send = slice_of(exchange.send, comm.rank, bytes);
    exchange.shape = exchange.shape == Shape::ReduceScatter ? Shape::AllReduce : Shape::AllGather;
  }
  if (small) return start(exchange);
  bool many = exchange.shape == Shape::AllGather || exchange.shape == Shape::AllToAll || exchange.shape == Shape::Gather;
  int64_t written = bytes * (many ? std::max(1, comm.size) : 1);
  if (exchange.recv != nullptr) presim::forget(exchange.recv, size_t(written));
  if (!exchange.alone) skip_collective(comm);
}

int move(const Logged& logged, void* stream, Exchange exchange) {
  return now_or_replayed(logged, stream, [comm = logged.comm, exchange] { move_payload(*comm, exchange); });
}

}  // namespace

PRESIM_EXPORT int ncclAllReduce(const void* send, void* recv, size_t count, int type, int op, void* comm, void* stream) {
  Logged logged = log(AllReduce, int64_t(count), type, op, -1, comm, stream);
  return move(logged, stream, {Shape::AllReduce, nullptr, send, recv, int64_t(count), type, op});
}

PRESIM_EXPORT int ncclReduce(const void* send, void* recv, size_t count, int type, int op, int root, void* comm,
                             void* stream) {
  Logged logged = log(Reduce, int64_t(count), type, op, root, comm, stream);
  return move(logged, stream, {Shape::Reduce, nullptr, send, recv, int64_t(count), type, op, root});
}

PRESIM_EXPORT int ncclBroadcast(const void* send, void* recv, size_t count, int type, int root, void* comm,
                                void* stream) {
  Logged logged = log(Broadcast, int64_t(count), type, -1, root, comm, stream);
  return now_or_replayed(logged, stream, [=, comm = logged.comm] {
    // From a rank that does not run, the receiver keeps its own data, which are the same.
    if (is_present(*comm, root)) {
      move_payload(*comm, {Shape::Broadcast, nullptr, send, recv, int64_t(count), type, -1, root});
    } else {
      skip_collective(*comm);
    }
    queue_broadcast(comm, recv, int64_t(count) * type_bytes(type), root);
  });
}
PRESIM_EXPORT int ncclBcast(void* buffer, size_t count, int type, int root, void* comm, void* stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

PRESIM_EXPORT int ncclAllGather(const void* send, void* recv, size_t count, int type, void* comm, void* stream) {
  Logged logged = log(AllGather, int64_t(count), type, -1, -1, comm, stream);
  return move(logged, stream, {Shape::AllGather, nullptr, send, recv, int64_t(count), type});
}

PRESIM_EXPORT int ncclReduceScatter(const void* send, void* recv, size_t count, int type, int op, void* comm,
                                    void* stream) {
  Logged logged = log(ReduceScatter, int64_t(count), type, op, -1, comm, stream);
  return move(logged, stream, {Shape::ReduceScatter, nullptr, send, recv, int64_t(count), type, op});
}

PRESIM_EXPORT int ncclAlltoAll(const void* send, void* recv, size_t count, int type, void* comm, void* stream) {
  Logged logged = log(AllToAll, int64_t(count), type, -1, -1, comm, stream);
  return move(logged, stream, {Shape::AllToAll, nullptr, send, recv, int64_t(count), type});
}

PRESIM_EXPORT int ncclGather(const void* send, void* recv, size_t count, int type, int root, void* comm, void* stream) {
  Logged logged = log(Gather, int64_t(count), type, -1, root, comm, stream);
  return move(logged, stream, {Shape::Gather, nullptr, send, recv, int64_t(count), type, -1, root});
}

// From a root that does not run, the receiver keeps its own data.
PRESIM_EXPORT int ncclScatter(const void* send, void* recv, size_t count, int type, int root, void* comm, void* stream) {
  Logged logged = log(Scatter, int64_t(count), type, -1, root, comm, stream);
  return now_or_replayed(logged, stream, [=, comm = logged.comm] {
    if (!is_present(*comm, root)) return skip_collective(*comm);
    move_payload(*comm, {Shape::Scatter, nullptr, send, recv, int64_t(count), type, -1, root});
  });
}

PRESIM_EXPORT int ncclSend(const void* data, size_t count, int type, int peer, void* comm, void* stream) {
  Logged logged = log(Send, int64_t(count), type, -1, peer, comm, stream);
  int64_t bytes = int64_t(count) * type_bytes(type);
  return now_or_replayed(logged, stream, [=, comm = logged.comm] { queue_send(comm, data, bytes, peer); });
}

PRESIM_EXPORT int ncclRecv(void* data, size_t count, int type, int peer, void* comm, void* stream) {
  Logged logged = log(Recv, int64_t(count), type, -1, peer, comm, stream);
  int64_t bytes = int64_t(count) * type_bytes(type);
  return now_or_replayed(logged, stream, [=, comm = logged.comm] { queue_recv(comm, data, bytes, peer); });
}

PRESIM_EXPORT int ncclGroupStart() {
  group_start();
  return kSuccess;
}
PRESIM_EXPORT int ncclGroupEnd() { return group_end() ? kSuccess : kInvalidUsage; }
PRESIM_EXPORT int ncclGroupSimulateEnd(void*) { return ncclGroupEnd(); }

PRESIM_EXPORT int ncclRedOpCreatePreMulSum(int* op, void* scalar, int type, int, void* comm) {
  if (op == nullptr || scalar == nullptr || checked(comm) == nullptr) return kInvalidArgument;
  *op = create_premul_op(read_scalar(scalar, type));
  return kSuccess;
}
PRESIM_EXPORT int ncclRedOpDestroy(int op, void*) { return op >= kFirstOwnOp ? kSuccess : kInvalidArgument; }
