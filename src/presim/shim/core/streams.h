// Streams. A handle is nullptr or 1 (the device's default stream), 2 (the thread's), or a Stream*.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "device.h"
#include "host_waits.h"

namespace presim {

struct Capture;
struct Node;

constexpr unsigned kStreamNonBlocking = 1;
constexpr int kLeastPriority = 0, kGreatestPriority = -5;

struct Stream {
  std::atomic<bool> live{false};
  uint16_t index = 0;  // Record::stream; 0: default stream of the first device that used its own
  uint16_t device = 0;
  int priority = 0;
  unsigned flags = 0;
  std::atomic<Capture*> capture{nullptr};  // the capture in which it takes part
  std::vector<Node*> last;                 // within a capture: dependencies of its next node
  JointCalls calls;                        // that it passes together with other ranks
};

int create_stream(Stream** out, unsigned flags, int priority);
int destroy_stream(void* handle);

// The stream behind a handle; nullptr: invalid.
Stream* find_stream(void* handle);
// The handle that the program sees for a stream found by another handle.
bool is_default_handle(const void* handle);

// Host waits. Refused within a capture, as in CUDA.
int query_stream(void* handle);
int synchronize_stream(void* handle);
int synchronize_device();
// The host waits for all earlier work on the stream.
void await_stream(const Stream& stream);

// Records the host's wait for a stream, or for the current device.
void wait_for_stream(uint16_t index);
void wait_for_device();

}  // namespace presim
