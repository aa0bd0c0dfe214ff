// NCCL calls that communicate: each is logged with its message size as nccl-tests counts it, and small payloads move.
#include <algorithm>

#include "core/values.h"
#include "libs/nccl.h"

namespace {
using namespace presim::libs;
using namespace presim::libs::nccl;

enum Kind : int { AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Send, Recv, Gather, Scatter };
constexpr const char* kKinds[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce",
                                  "all_to_all", "send",       "recv",           "gather",    "scatter"};

struct Key {
  int64_t bytes;
  int32_t kind, type, op, comm, peer, per_rank;
};

std::string describe(const Key& key) {
  Text text("collective");
  text.add("kind", kKinds[key.kind]).add("bytes", key.bytes).add("dtype", type_name(key.type));
  text.add("redop", key.op < kFirstOwnOp ? op_name(key.op) : "premul_sum");
  text.add("comm", key.comm).add("peer", key.peer);
  if (key.per_rank) text.add("per_rank", 1);  // times the group's size, which the framework knows
  return text;
}

// Collectives whose message is one slice per rank.
bool sliced(Kind kind) {
  return kind == AllGather || kind == ReduceScatter || kind == Gather || kind == Scatter || kind == AllToAll;
}

int log(Kind kind, int64_t count, int type, int op, int peer, void* comm, void* stream) {
  Communicator* found = checked(comm);
  if (found == nullptr || type < 0 || type > 11 || count < 0) return kInvalidArgument;
  if (peer != -1 && found->size > 0 && (peer < 0 || peer >= found->size)) return kInvalidArgument;
  if (count == 0 && kind != Send && kind != Recv) return kSuccess;  // NCCL drops empty collectives, not messages
  int64_t bytes = count * type_bytes(type);
  bool unknown = sliced(kind) && found->size < 0;
  if (sliced(kind) && !unknown) bytes *= found->size;
  int32_t own_op = op >= kFirstOwnOp ? int(kFirstOwnOp) : op;  // factors do not matter for time
  Key key{bytes, kind, type, own_op, found->serial, peer, unknown};
  presim::log_collective(stream, descriptor(key, describe), launch_group());
  return kSuccess;
}

bool small(int64_t count, int type, Communicator* comm, bool writes_all_slices) {
  int64_t bytes = count * type_bytes(type);
  if (comm->size < 1 || bytes > kSmallPayload) return false;
  return !writes_all_slices || bytes * comm->size <= kSmallResult;
}

// Every slot of `recv` gets the same slice.
void fill_slots(void* recv, const void* slice, size_t bytes, int slots) {
  if (recv == nullptr || slice == nullptr) return;
  std::string copy(static_cast<const char*>(slice), bytes);  // the slice may lie inside recv
  for (int i = 0; i < slots; ++i) std::memcpy(static_cast<char*>(recv) + size_t(i) * bytes, copy.data(), bytes);
}

void copy(void* recv, const void* send, size_t bytes) {
  if (recv != nullptr && send != nullptr && recv != send) std::memmove(recv, send, bytes);
}

// Every rank's slice, of which each is taken to be `slice`.
void exchange(void* recv, const void* slice, int64_t count, int type, Communicator* comm) {
  int64_t bytes = count * type_bytes(type);
  bool moved = small(count, type, comm, true);
  uint8_t origin = moved && slice != nullptr ? presim::origin_of(slice, size_t(bytes)) : presim::kNobody;
  if (moved) fill_slots(recv, slice, size_t(bytes), comm->size);
  if (recv != nullptr) presim::know(recv, size_t(bytes * std::max(1, comm->size)), origin);
}

const char* slice_of(const void* buffer, int rank, int64_t count, int type) {
  return buffer == nullptr ? nullptr : static_cast<const char*>(buffer) + rank * count * type_bytes(type);
}

}  // namespace

PRESIM_EXPORT int ncclAllReduce(const void* send, void* recv, size_t count, int type, int op, void* comm, void* stream) {
  int status = log(AllReduce, int64_t(count), type, op, -1, comm, stream);
  if (status != kSuccess) return status;
  bool moved = small(int64_t(count), type, checked(comm), false);
  int64_t bytes = int64_t(count) * type_bytes(type);
  received(recv, bytes, send, bytes, moved);
  if (moved) reduce_equal(send, recv, int64_t(count), type, op, checked(comm)->size);
  return status;
}

PRESIM_EXPORT int ncclReduce(const void* send, void* recv, size_t count, int type, int op, int root, void* comm,
                             void* stream) {
  int status = log(Reduce, int64_t(count), type, op, root, comm, stream);
  if (status == kSuccess && checked(comm)->rank == root && small(int64_t(count), type, checked(comm), false)) {
    reduce_equal(send, recv, int64_t(count), type, op, checked(comm)->size);
  }
  return status;
}

PRESIM_EXPORT int ncclBroadcast(const void* send, void* recv, size_t count, int type, int root, void* comm,
                                void* stream) {
  int status = log(Broadcast, int64_t(count), type, -1, root, comm, stream);
  if (status == kSuccess && checked(comm)->rank == root && small(int64_t(count), type, checked(comm), false)) {
    received(recv, int64_t(count) * type_bytes(type), send, int64_t(count) * type_bytes(type), true);
    copy(recv, send, count * size_t(type_bytes(type)));
  }
  if (status == kSuccess && small(int64_t(count), type, checked(comm), false)) {
    queue_broadcast(checked(comm), recv, int64_t(count) * type_bytes(type), root);
  }
  return status;  // elsewhere the receiver keeps what it holds: the same data
}
PRESIM_EXPORT int ncclBcast(void* buffer, size_t count, int type, int root, void* comm, void* stream) {
  return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}

PRESIM_EXPORT int ncclAllGather(const void* send, void* recv, size_t count, int type, void* comm, void* stream) {
  int status = log(AllGather, int64_t(count), type, -1, -1, comm, stream);
  if (status == kSuccess) exchange(recv, send, int64_t(count), type, checked(comm));
  return status;
}

PRESIM_EXPORT int ncclReduceScatter(const void* send, void* recv, size_t count, int type, int op, void* comm,
                                    void* stream) {
  int status = log(ReduceScatter, int64_t(count), type, op, -1, comm, stream);
  if (status != kSuccess) return status;
  const char* own = slice_of(send, checked(comm)->rank, int64_t(count), type);
  bool moved = small(int64_t(count), type, checked(comm), false);
  int64_t bytes = int64_t(count) * type_bytes(type);
  received(recv, bytes, own, bytes, moved);
  if (moved) reduce_equal(own, recv, int64_t(count), type, op, checked(comm)->size);
  return status;
}

// Every peer sends us the slice that we would send to ourselves.
PRESIM_EXPORT int ncclAlltoAll(const void* send, void* recv, size_t count, int type, void* comm, void* stream) {
  int status = log(AllToAll, int64_t(count), type, -1, -1, comm, stream);
  if (status != kSuccess) return status;
  exchange(recv, slice_of(send, checked(comm)->rank, int64_t(count), type), int64_t(count), type, checked(comm));
  return status;
}

PRESIM_EXPORT int ncclGather(const void* send, void* recv, size_t count, int type, int root, void* comm, void* stream) {
  int status = log(Gather, int64_t(count), type, -1, root, comm, stream);
  if (status == kSuccess && checked(comm)->rank == root && small(int64_t(count), type, checked(comm), true)) {
    fill_slots(recv, send, count * size_t(type_bytes(type)), checked(comm)->size);
  }
  return status;
}

PRESIM_EXPORT int ncclScatter(const void* send, void* recv, size_t count, int type, int root, void* comm, void* stream) {
  int status = log(Scatter, int64_t(count), type, -1, root, comm, stream);
  if (status == kSuccess && checked(comm)->rank == root && small(int64_t(count), type, checked(comm), false)) {
    copy(recv, slice_of(send, checked(comm)->rank, int64_t(count), type), count * size_t(type_bytes(type)));
  }
  return status;
}

PRESIM_EXPORT int ncclSend(const void* data, size_t count, int type, int peer, void* comm, void* stream) {
  int status = log(Send, int64_t(count), type, -1, peer, comm, stream);
  if (status == kSuccess) queue_send(checked(comm), data, int64_t(count) * type_bytes(type), peer);
  return status;
}

PRESIM_EXPORT int ncclRecv(void* data, size_t count, int type, int peer, void* comm, void* stream) {
  int status = log(Recv, int64_t(count), type, -1, peer, comm, stream);
  if (status == kSuccess) queue_recv(checked(comm), data, int64_t(count) * type_bytes(type), peer);
  return status;
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
