// Sleep: see timed_waits.h.
#include <cerrno>
#include <ctime>

#include "timed_waits.h"

using namespace presim;

PRESIM_REPLACES int clock_nanosleep(clockid_t clock, int flags, const timespec* wanted, timespec* rest) {
  PRESIM_REAL(clock_nanosleep);
  bool until = (flags & TIMER_ABSTIME) != 0;
  if (wanted == nullptr || !log_open()) return real_clock_nanosleep(clock, flags, wanted, rest);
  if (live_ns() < 0) {
    timespec now;
    clock_gettime(clock, &now);
    int64_t ns = joined(*wanted) - (until ? joined(now) : 0);
    int status = real_clock_nanosleep(clock, flags, wanted, rest);
    if (status == 0) slept(ns);
    return status;
  }
  int64_t moment = until ? live_ns_of(clock, *wanted) : live_now() + joined(*wanted);
  int status = 0;
  wait_until(moment, true, [&](int64_t ns) {
    timespec part = split(ns);
    status = real_clock_nanosleep(CLOCK_MONOTONIC, 0, &part, until ? nullptr : rest);
    return status == 0;
  });
  return status;
}

PRESIM_REPLACES int nanosleep(const timespec* wanted, timespec* rest) {
  int status = clock_nanosleep(CLOCK_MONOTONIC, 0, wanted, rest);
  if (status == 0) return 0;
  errno = status;
  return -1;
}

PRESIM_REPLACES int usleep(useconds_t us) {
  timespec wanted = split(int64_t(us) * 1000);
  return nanosleep(&wanted, nullptr);
}

PRESIM_REPLACES unsigned sleep(unsigned seconds) {
  timespec wanted{time_t(seconds), 0}, rest{};
  return nanosleep(&wanted, &rest) == 0 ? 0 : unsigned(rest.tv_sec) + (rest.tv_nsec > 0);
}
