// Time spent on recording. It is CPU time of the process but not of the program. The recorder subtracts it from every
// record's clock, so that host time is that of the script without presim.
#pragma once
#include <x86intrin.h>

#include <cstdint>
#include <ctime>

#include "recorder.h"

namespace presim {

PRESIM_API void add_own_time(int64_t ns);
PRESIM_API void add_elapsed_ticks(uint64_t ticks);
PRESIM_API int64_t own_time();        // total of all threads, ns
void forget_own_time();
PRESIM_API double ns_per_tick();      // of the time stamp counter, measured once
PRESIM_API int& own_time_depth();     // open OwnTime of this thread
PRESIM_API uint64_t& own_work_ticks();  // of this thread, spent within OwnWork

// Counts its own lifetime. Nested instances count nothing.
class OwnTime {
 public:
  OwnTime() : outermost_(own_time_depth()++ == 0), start_(outermost_ ? __rdtsc() - own_work_ticks() : 0) {}
  ~OwnTime() {
    --own_time_depth();
    if (outermost_) add_elapsed_ticks(__rdtsc() - own_work_ticks() - start_);
  }
  OwnTime(const OwnTime&) = delete;
  OwnTime& operator=(const OwnTime&) = delete;

 private:
  bool outermost_;
  uint64_t start_;
};

// Our own work that may take long, measured by the thread's CPU clock (0.3 us per reading). A surrounding OwnTime
// excludes it.
class OwnWork {
 public:
  OwnWork() : start_ticks_(__rdtsc()), start_ns_(thread_ns()) { ++own_time_depth(); }
  ~OwnWork() {
    --own_time_depth();
    add_own_time(thread_ns() - start_ns_);
    own_work_ticks() += __rdtsc() - start_ticks_;
  }
  OwnWork(const OwnWork&) = delete;
  OwnWork& operator=(const OwnWork&) = delete;

 private:
  static int64_t thread_ns() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
  }

  uint64_t start_ticks_;
  int64_t start_ns_;
};

}  // namespace presim
