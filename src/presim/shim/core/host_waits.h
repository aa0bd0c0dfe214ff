// What a host waits for beside its own device: collectives that other ranks have not called yet.
//
// A stream ends a collective when all its ranks have called it. The emulated device takes no time, so a wait of the host
// would return at once, and a rank could read a file that another one has yet to write. For each stream and each
// recording of an event we therefore keep the calls that come before it; a host that waits for the stream or the event
// waits until all of them were called by the other ranks that run (libs/nccl_joins.h). With a live clock the simulation
// does the same (live.h).
#pragma once
#include <cstdint>
#include <vector>

#include "recorder.h"

namespace presim {

struct Event;
struct Stream;

// A call that a stream passes only together with other ranks.
struct JointCall {
  uint32_t channel;  // a sequence of calls that the same ranks make in the same order
  uint64_t number;   // in it, from 1; all earlier calls come before it
};

// Calls before a point of a stream: the latest of each channel, by channel.
using JointCalls = std::vector<JointCall>;

// Set by the first library that has such calls. `wait` returns when all have been called.
struct HostWaits {
  void (*wait)(const JointCalls& calls);
  bool (*is_over)(JointCall call);  // whether a wait for this call would return at once
};
PRESIM_API void answer_host_waits(const HostWaits* waits);

// Whether calls are tracked at all.
bool tracks_joint_calls();

// The stream passes the call. `handle`: as passed by the program; nullptr: the default stream.
PRESIM_API void add_joint_call(void* handle, JointCall call);
void add_joint_call(Stream& stream, JointCall call);
// The stream that a graph is launched on by this thread; nullptr outside of a launch.
PRESIM_API Stream*& replaying_stream();
PRESIM_API void add_replayed_call(JointCall call);

void record_joint_calls(const Stream& stream, Event& event);
void follow_joint_calls(Stream& stream, const Event& event);

// The host waits; to be called after its wait was logged.
void wait_for_joint_calls(const Stream& stream);
void wait_for_joint_calls(const Event& event);
void wait_for_joint_calls(int device);

// The process waited: the CPU caches may hold the data of others.
PRESIM_API void host_waited();

}  // namespace presim
