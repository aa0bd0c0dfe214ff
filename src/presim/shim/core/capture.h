// Stream capture: work on a capturing stream becomes nodes of a graph. A stream that waits for an event recorded in a
// capture joins it. The capture ends on the stream where it began, after all others have joined back.
#pragma once
#include <functional>
#include <mutex>
#include <vector>

#include "events.h"
#include "graphs.h"
#include "streams.h"

namespace presim {

enum class CaptureMode : int { Global = 0, ThreadLocal = 1, Relaxed = 2 };
enum class CaptureStatus : int { None = 0, Active = 1, Invalidated = 2 };

struct Capture {
  uint64_t id;
  Graph* graph;
  bool own_graph;  // created by this capture, not passed in
  Stream* origin;
  CaptureMode mode;
  unsigned long thread;
  bool invalidated = false;
  std::vector<Stream*> members;  // origin first
};

// Guards all captures and the graphs being captured. Functions marked "locked" require that the caller holds it.
std::mutex& capture_mutex();

int begin_capture(void* stream, int mode, Graph* into, Node* const* dependencies, size_t count);
int end_capture(void* stream, Graph** out);
CaptureStatus capture_status(Stream& stream);
int exchange_capture_mode(int* mode);
bool capture_active(uint64_t id);
bool any_capture();  // of any stream, on any thread

// Called on a capturing stream: calls that wait for the device fail and invalidate the capture, as in CUDA.
int refuse_in_capture(Stream& stream);
// Calls that may wait for the device (cudaMalloc, cudaEventQuery...) while a capture forbids them on this thread.
int refuse_unsafe_call();
int invalidate_capture(Stream& stream, int status);
void leave_capture(Stream& stream);

// Adds work to the graph of a capturing stream; false if it does not capture (any more).
bool capture_entry(Stream& stream, Entry entry, NodeType type);
// Adds an action for each replay that is not work of the graph; false as above.
bool capture_effect(Stream& stream, std::function<void()> effect);
int record_in_capture(Stream& stream, Event& event, bool external);
int wait_outside_capture(Stream& stream, Event& event);
int join_capture(Stream& stream, Event& event);  // locked

}  // namespace presim
