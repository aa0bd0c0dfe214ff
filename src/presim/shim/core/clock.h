// Clocks for our own use, which are never simulated. The program's clocks may be (host_clock.cpp).
#pragma once
#include <ctime>

#include <cstdint>

namespace presim {

int64_t clock_ns(clockid_t clock);

// Reading the process's CPU clock is a system call (300 ns on the benchmark machine), reading the monotonic clock is
// not (25 ns). Within 20 us of the last CPU clock reading, this process is assumed to have run without interruption. A
// longer interruption is detected at the next reading, so that no reading is wrong by more than 20 us. Not
// thread-safe; never goes back.
class CpuClock {
 public:
  int64_t now() {
    int64_t wall = clock_ns(CLOCK_MONOTONIC);
    if (wall - synced_wall_ > kTrusted_ns) {
      synced_cpu_ = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
      synced_wall_ = wall;
    }
    int64_t cpu = synced_cpu_ + (wall - synced_wall_);
    if (cpu > last_) last_ = cpu;
    return last_;
  }

 private:
  static constexpr int64_t kTrusted_ns = 20000;
  int64_t synced_wall_ = -kTrusted_ns - 1;
  int64_t synced_cpu_ = 0;
  int64_t last_ = 0;
};

}  // namespace presim
