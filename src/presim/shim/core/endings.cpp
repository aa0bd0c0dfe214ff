#include "endings.h"

#include <algorithm>
#include <atomic>

namespace presim {
namespace {

std::atomic<int64_t> ended_on_stream[1 << 16];  // highest serial, by index of the stream
std::atomic<int64_t> ended_on_all{0};

void raise(std::atomic<int64_t>& highest, int64_t serial) {
  int64_t before = highest.load(std::memory_order_relaxed);
  while (before < serial && !highest.compare_exchange_weak(before, serial)) {
  }
}

}  // namespace

void saw_end(uint16_t stream, int64_t serial) { raise(ended_on_stream[stream], serial); }
void saw_end_of_all(int64_t serial) { raise(ended_on_all, serial); }

bool has_seen_end(uint16_t stream, int64_t serial) {
  return serial <= std::max(ended_on_stream[stream].load(std::memory_order_relaxed),
                            ended_on_all.load(std::memory_order_relaxed));
}

}  // namespace presim
