// Events. Every recording has its own serial. A wait refers to the latest recording at the time of its call.
#pragma once
#include <atomic>
#include <cstdint>
#include <vector>

#include "streams.h"

namespace presim {

struct Graph;

constexpr unsigned kEventDisableTiming = 2, kEventInterprocess = 4;

struct Event {
  std::atomic<bool> live{false};
  unsigned flags = 0;
  std::atomic<int64_t> serial{0};   // latest recording outside of captures; 0: never recorded
  std::atomic<uint16_t> stream{0};  // of that recording
  std::atomic<int64_t> host_ns{0};  // when it was recorded
  // Latest recording within a capture, if it is newer than `serial`.
  uint64_t capture_id = 0;
  int64_t token = 0;
  std::vector<Node*> dependencies;
  JointCalls calls;                 // of the latest recording: that come before it
};

int create_event(Event** out, unsigned flags);
int destroy_event(void* handle);
Event* find_event(void* handle);

int record_event(void* event, void* stream, unsigned flags);
int wait_event(void* stream, void* event, unsigned flags);
int query_event(void* event);
int synchronize_event(void* event);
int elapsed_ms(float* out, void* start, void* end);

// Allocates serials for `count` recordings and returns the first.
int64_t take_serials(int64_t count);
int64_t latest_serial();

}  // namespace presim
