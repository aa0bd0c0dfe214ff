// Stream capture: work asked of a capturing stream becomes nodes of a graph. A stream that waits for an event recorded
// in a capture joins it; the capture ends in the stream where it began, when all others have been joined back.
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
  bool own_graph;  // made by this capture, rather than handed in
  Stream* origin;
  CaptureMode mode;
  unsigned long thread;
  bool invalidated = false;
  std::vector<Stream*> members;  // origin first
};

// Guards every capture and the graphs being captured. Functions marked "locked" expect the caller to hold it.
std::mutex& capture_mutex();

int begin_capture(void* stream, int mode, Graph* into, Node* const* dependencies, size_t count);
int end_capture(void* stream, Graph** out);
CaptureStatus capture_status(Stream& stream);
int exchange_capture_mode(int* mode);
bool capture_active(uint64_t id);
bool any_capture();  // of any stream, on any thread

// Called on a stream that captures: fails what waits for the device, and spoils the capture, as CUDA does.
int refuse_in_capture(Stream& stream);
// Calls that may wait for the device (cudaMalloc, cudaEventQuery...) while a capture forbids them to this thread.
int refuse_unsafe_call();
int invalidate_capture(Stream& stream, int status);
void leave_capture(Stream& stream);

// Adds work to the graph of a capturing stream; false when it does not capture (any more).
bool capture_entry(Stream& stream, Entry entry, NodeType type);
// Something to do at each replay that is no work of the graph's; false as above.
bool capture_effect(Stream& stream, std::function<void()> effect);
int record_in_capture(Stream& stream, Event& event, bool external);
int wait_outside_capture(Stream& stream, Event& event);
int join_capture(Stream& stream, Event& event);  // locked

}  // namespace presim
