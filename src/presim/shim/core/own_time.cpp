#include "own_time.h"

#include <atomic>

#include "clock.h"

namespace presim {
namespace {

std::atomic<int64_t> total{0};

double measure_ns_per_tick() {
  constexpr int64_t kLong_ns = 1000000;
  int64_t start = clock_ns(CLOCK_MONOTONIC), now = start;
  uint64_t first = __rdtsc();
  while (now - start < kLong_ns) now = clock_ns(CLOCK_MONOTONIC);
  return double(now - start) / double(__rdtsc() - first);
}

}  // namespace

void add_elapsed_ticks(uint64_t ticks) {
  // Longer than any work here: the thread was interrupted, and the process's CPU clock did not advance meanwhile.
  constexpr int64_t kInterrupted_ns = 1000000;
  auto ns = int64_t(double(ticks) * ns_per_tick());
  if (ns < kInterrupted_ns) add_own_time(ns);
}

void add_own_time(int64_t ns) { total.fetch_add(ns, std::memory_order_relaxed); }

void forget_own_time() { total = 0; }

int64_t own_time() { return total.load(std::memory_order_relaxed); }

double ns_per_tick() {
  static const double rate = measure_ns_per_tick();
  return rate;
}

int& own_time_depth() {
  static thread_local int depth = 0;
  return depth;
}

uint64_t& own_work_ticks() {
  static thread_local uint64_t ticks = 0;
  return ticks;
}

}  // namespace presim
