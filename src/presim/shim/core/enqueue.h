// Device work: into the log, or into the graph that its stream captures.
#pragma once
#include <functional>

#include "graphs.h"
#include "streams.h"

namespace presim {

// Adds the descriptor to a stream that the caller has looked up. `effect`: the action to repeat at each replay.
void enqueue(Stream& stream, int32_t work, NodeType type, std::function<void()> effect = nullptr);

// Calls `function` now, since earlier work takes no time on the emulated device. Within a capture: at each replay.
int enqueue_host(void* stream, void (*function)(void*), void* data);

}  // namespace presim
