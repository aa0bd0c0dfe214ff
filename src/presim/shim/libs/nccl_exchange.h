// Exchange of small payloads: done as on NCCL's streams, but only if the bytes are needed.
//
// A call never waits. A rank's contribution is copied and posted at once or, if it is the pending result of an earlier
// call, as soon as that arrives. A result is written to memory when all its inputs have arrived. Reading that memory
// earlier waits for it (core/arrivals.h). So a rank waits only for values, and ranks without circular dependencies
// between values cannot deadlock.
#pragma once
#include "libs/nccl.h"

namespace presim::libs::nccl {

enum class Shape {
  AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Gather, Scatter,
  Send, Recv,
  Local,  // within this process: data of a rank that does not run
};

struct Exchange {
  Shape shape;
  Communicator* comm;
  const void* send = nullptr;
  void* recv = nullptr;
  int64_t count = 0;  // elements of one slice
  int type = 0;
  int op = -1;
  int root = -1;      // or the peer
  bool alone = false; // ignore other ranks
  int origin = -1;    // origin of sent values (core/values.h); -1: as recorded for that memory
};

void start(const Exchange& exchange);

// Counts a collective or message whose payload does not move.
void skip_collective(Communicator& comm);
void skip_message(Communicator& comm, int peer, bool sent);

// While an instance exists, its thread accesses memory as it is: no waits, nothing discarded.
class AsItIs {
 public:
  AsItIs() { ++depth(); }
  ~AsItIs() { --depth(); }
  AsItIs(const AsItIs&) = delete;
  AsItIs& operator=(const AsItIs&) = delete;
  static int& depth();
};

}  // namespace presim::libs::nccl
