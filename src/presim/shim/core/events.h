// Events. Every recording has a serial of its own; a wait refers to the recording that was the latest when it was asked.
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
  std::atomic<int64_t> host_ns{0};  // when it was asked for
  // Latest recording within a capture, while that is younger than `serial`.
  uint64_t capture_id = 0;
  int64_t token = 0;
  std::vector<Node*> dependencies;
};

int create_event(Event** out, unsigned flags);
int destroy_event(void* handle);
Event* find_event(void* handle);

int record_event(void* event, void* stream, unsigned flags);
int wait_event(void* stream, void* event, unsigned flags);
int query_event(void* event);
int synchronize_event(void* event);
int elapsed_ms(float* out, void* start, void* end);

// Serials for `count` recordings; returns the first.
int64_t take_serials(int64_t count);

}  // namespace presim
