// The communicators of one emulated rank. Calls return at once. Small payloads are exchanged between ranks that run
// concurrently on this machine. A rank that does not run is assumed to have its representative's data.
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

// Ranks with the same contribution.
struct Voice {
  int32_t rank;    // rank of the communicator that contributes
  int64_t global;  // its global rank, -1: this process
  int64_t ranks;   // number of ranks, including itself
};

struct Communicator {
  static constexpr uint64_t kMagic = 0x6e63636c70726573;
  uint64_t magic = kMagic;
  int32_t serial = 0;
  int32_t size = 0;  // -1: a split whose size only the framework knows
  int32_t rank = 0;
  int32_t device = 0;      // of this process
  int32_t gpu = 0;         // of the node, behind the device
  bool is_checked = false; // no other member is on this GPU
  uint64_t identity = 0;   // hash of the unique id it was created from; equal on all its ranks
  int32_t splits = 0;      // number of splits so far; all its ranks take part in each
  std::string last_sent;   // payload of the latest small send, which an unmatched receive returns
  uint8_t last_sent_origin = 0;  // origin of its values (core/values.h)
  // Filled at its first use (nccl_members.cpp).
  bool known = false;
  std::vector<int64_t> members;  // global ranks; empty where unknown
  std::vector<int32_t> voice;    // by rank: the rank whose contribution is used; empty: ours for all
  std::vector<Voice> voices;     // all of them, ours first
  // Number of calls so far, equal on all ranks (guarded by the exchange's lock).
  uint64_t collectives = 0;
  std::vector<uint64_t> sent, received;  // by peer
};

inline Communicator* checked(void* comm) {
  auto* found = static_cast<Communicator*>(comm);
  return found != nullptr && found->magic == Communicator::kMagic ? found : nullptr;
}

// Set by the launcher, or torchrun's variable: PRESIM_RANK or RANK, PRESIM_WORLD_SIZE or WORLD_SIZE; -1: neither.
int64_t launched(const char* name);

// Global ranks of the communicator, where known, and their representatives.
void learn_members(Communicator& comm);
// Whether its members can be known already.
bool can_learn_members(const Communicator& comm);
// kInvalidUsage if another member uses the same GPU, as NCCL finds when a communicator is created. Waits until all members
// have created it.
int check_devices(Communicator& comm);
const std::string& last_error();
// Whether that rank runs concurrently.
bool is_present(const Communicator& comm, int rank);

// ---- data types and reductions (nccl_values.cpp)
constexpr int64_t kSmallPayload = 65536;      // per rank; larger ones are tensors that hosts do not read
constexpr int64_t kSmallResult = 64ll << 20;  // of all ranks; large enough for objects gathered in a large world
int type_bytes(int type);
const char* type_name(int type);

enum ReduceOp : int { kSum = 0, kProd = 1, kMax = 2, kMin = 3, kAvg = 4, kFirstOwnOp = 5 };
const char* op_name(int op);
int create_premul_op(double factor);
double read_scalar(const void* value, int type);

struct Part {
  const char* data;
  int64_t ranks;  // number of ranks that hold it
};
// `ranks` in all.
std::string reduce(const std::vector<Part>& parts, int64_t count, int type, int op, int64_t ranks);
// Contribution of a rank to a sum with its own operator (ncclRedOpCreatePreMulSum).
void scale_by_own_factor(std::string* data, int type, int op);

// ---- groups (nccl_group.cpp)
// Logs a call and returns whether it became a node of a graph. Calls of an outermost group share a serial and are
// logged at its end, when they are launched. Other calls are launches of their own.
bool log_launch(const Communicator& comm, void* stream, int32_t work);
void group_start();
bool is_in_group();
bool group_end();

// Messages from ranks that do not run wait for the end of the group, because a receive may precede its send.
void queue_broadcast(Communicator* comm, void* data, int64_t bytes, int root);  // `data`: the receive buffer
void queue_send(Communicator* comm, const void* data, int64_t bytes, int peer);
void queue_recv(Communicator* comm, void* data, int64_t bytes, int peer);

}  // namespace presim::libs::nccl
