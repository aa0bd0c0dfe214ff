// Device work on its way into the log, or into the graph that its stream captures.
#pragma once
#include <functional>

#include "graphs.h"
#include "streams.h"

namespace presim {

// The descriptor goes to a stream that the caller has looked up. `effect` is what a replay repeats for real.
void enqueue(Stream& stream, int32_t work, NodeType type, std::function<void()> effect = nullptr);

// Calls `function` now: the work before it takes no time on the emulated device. Within a capture: at each replay.
int enqueue_host(void* stream, void (*function)(void*), void* data);

}  // namespace presim
