// The time that observing takes. It is CPU time of the process, but none of it the program's: the recorder takes it
// off every record's clock, so that host time is what the script would have spent without us.
#pragma once
#include <x86intrin.h>

#include <cstdint>

#include "recorder.h"

namespace presim {

PRESIM_API void add_own_time(int64_t ns);
PRESIM_API void add_elapsed_ticks(uint64_t ticks);
PRESIM_API int64_t own_time();        // ns in all, of all threads
PRESIM_API double ns_per_tick();      // of the time stamp counter, measured once
PRESIM_API int& own_time_depth();     // open OwnTime of this thread

// Counts its own lifetime; within another one it counts nothing.
class OwnTime {
 public:
  OwnTime() : outermost_(own_time_depth()++ == 0), start_(outermost_ ? __rdtsc() : 0) {}
  ~OwnTime() {
    --own_time_depth();
    if (outermost_) add_elapsed_ticks(__rdtsc() - start_);
  }
  OwnTime(const OwnTime&) = delete;
  OwnTime& operator=(const OwnTime&) = delete;

 private:
  bool outermost_;
  uint64_t start_;
};

}  // namespace presim
