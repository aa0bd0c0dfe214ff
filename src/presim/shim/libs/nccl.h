// The communicators of one emulated rank. Its peers do not exist: every call succeeds at once, and small payloads move
// as if every rank held the same data.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "libs/common.h"

namespace presim::libs::nccl {

enum Result : int { kSuccess = 0, kInvalidArgument = 4, kInvalidUsage = 5 };

struct UniqueId {
  char internal[128];
};

struct Communicator {
  static constexpr uint64_t kMagic = 0x6e63636c70726573;
  uint64_t magic = kMagic;
  int32_t serial = 0;
  int32_t size = 0;  // -1: a split whose size only the framework knows
  int32_t rank = 0;
  int32_t device = 0;
  uint64_t identity = 0;       // hash of the unique id it grew from; equal on all its ranks
  int32_t splits = 0;          // made of it so far; every rank of it takes part in each
  std::string last_sent;       // payload of the latest small send: what an unmatched receive gets
  uint8_t last_sent_origin = 0;  // who says what that holds (core/values.h)
};

inline Communicator* checked(void* comm) {
  auto* found = static_cast<Communicator*>(comm);
  return found != nullptr && found->magic == Communicator::kMagic ? found : nullptr;
}

// ---- data types and reductions (nccl_values.cpp)
constexpr int64_t kSmallPayload = 65536;       // per rank; larger ones are tensors nobody reads on the host
constexpr int64_t kSmallResult = 4ll << 20;  // of all ranks together: objects gathered in a world of 16,384 still move
int type_bytes(int type);
const char* type_name(int type);

enum ReduceOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kFirstOwnOp = 5 };
const char* op_name(int op);
int create_premul_op(double factor);

// recv[i] = what reducing `ranks` equal copies of send[i] gives.
void reduce_equal(const void* send, void* recv, int64_t count, int type, int op, int ranks);
double read_scalar(const void* value, int type);
// What arrived is known as far as what was sent is, if it was moved at all.
void received(const void* recv, int64_t recv_bytes, const void* send, int64_t send_bytes, bool moved);

// ---- groups (nccl_group.cpp)
// Serial shared by all calls of one outermost group; a call outside has its own.
int64_t launch_group();
void group_start();
bool group_end();

// Point-to-point payloads wait for the end of the group, because a receive may come before its send.
void queue_broadcast(Communicator* comm, void* data, int64_t bytes, int root);  // `data`: the receive buffer
void queue_send(Communicator* comm, const void* data, int64_t bytes, int peer);
void queue_recv(Communicator* comm, void* data, int64_t bytes, int peer);

}  // namespace presim::libs::nccl
