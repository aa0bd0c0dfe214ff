// Calls of concurrent ranks on their communicators, counted in shared memory, so that a host can wait for the other ranks
// (core/host_waits.h).
//
// Each rank has a file joins-<rank> beside its mail (nccl_mail.h): for each of its channels the number of its calls so
// far, and which numbers other ranks wait for. A channel is the sequence of collectives of a communicator, or of messages
// from one of its ranks to another. A call that somebody waits for wakes them; all other calls only count.
#pragma once
#include <cstdint>

#include "libs/nccl.h"

namespace presim::libs::nccl {

enum class Route { Collective, Send, Receive };

// This rank calls a collective, or sends to or receives from `peer`, on a stream of the program (nullptr: the default
// stream), or on the stream of the graph that is being launched.
struct Join {
  Communicator* comm;
  Route route;
  int peer;
};
void join(const Join& call, void* stream);
void join_at_replay(const Join& call);

// The GPU in its node of another rank that takes part in a communicator: announced when that is created.
constexpr int kUnknownGpu = -1;
void announce_gpu(const Communicator& comm);
// Waits for the announcement; kUnknownGpu if the rank has ended.
int gpu_of_rank(const Communicator& comm, int64_t global);

}  // namespace presim::libs::nccl
