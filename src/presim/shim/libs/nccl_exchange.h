// Small payloads on their way: what NCCL does on its streams, done as far as somebody needs the bytes.
//
// A call never waits. What a rank contributes is copied and posted at once, or, where it is itself the result of an
// earlier call, as soon as that is there. A result is put into memory when all that it needs has arrived; whoever reads
// that memory before waits for it (core/arrivals.h). So a rank waits only for values, never in an order of its own, and
// ranks whose values do not depend on each other in a circle cannot wait for each other in one.
#pragma once
#include "libs/nccl.h"

namespace presim::libs::nccl {

enum class Shape {
  AllReduce, AllGather, ReduceScatter, Broadcast, Reduce, AllToAll, Gather, Scatter,
  Send, Recv,
  Local,  // from here to here: what a rank that is not there would have sent
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
  bool alone = false; // as if nobody else were there
  int origin = -1;    // who says what is sent (core/values.h); -1: what is known of that memory
};

void start(const Exchange& exchange);

// A collective, or a message to or from a rank, whose payload does not move: it counts all the same.
void skip_collective(Communicator& comm);
void skip_message(Communicator& comm, int peer, bool sent);

// While one lives, its thread looks at memory as it is: nothing is waited for, nothing made void.
class AsItIs {
 public:
  AsItIs() { ++depth(); }
  ~AsItIs() { --depth(); }
  AsItIs(const AsItIs&) = delete;
  AsItIs& operator=(const AsItIs&) = delete;
  static int& depth();
};

}  // namespace presim::libs::nccl
