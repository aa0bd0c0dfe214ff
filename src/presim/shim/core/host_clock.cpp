// The host's clocks as seen by the program: simulated from the first record on with a live clock.
//
// Python and the C++ library read the clock through these functions of the C library. Our own code does not call them.
#include <dlfcn.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "clock.h"
#include "live.h"

namespace {

using Gettime = int (*)(clockid_t, timespec*);

constexpr int64_t kSecond = 1000000000;
constexpr clockid_t kOwn = 0x70726573;  // clock id of our own readings, which are never simulated
constexpr clockid_t kClocks = 12;

int by_system_call(clockid_t clock, timespec* out) { return int(syscall(SYS_clock_gettime, clock, out)); }

int real_gettime(clockid_t clock, timespec* out) {
  static std::atomic<Gettime> real{nullptr};
  Gettime found = real.load(std::memory_order_relaxed);
  if (found == nullptr) {
    real = by_system_call;  // for calls from dlsym
    found = reinterpret_cast<Gettime>(dlsym(RTLD_NEXT, "clock_gettime"));
    real = found = found != nullptr ? found : by_system_call;
  }
  return found(clock, out);
}

bool tells_time(clockid_t clock) {
  return clock == CLOCK_REALTIME || clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_RAW || clock == CLOCK_BOOTTIME ||
         clock == CLOCK_REALTIME_COARSE || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_TAI;
}

int64_t begin_ns[kClocks];  // value of each clock at the start of simulated time

timespec split(int64_t ns) { return {time_t(ns / kSecond), long(ns % kSecond)}; }

}  // namespace

namespace presim {

int64_t clock_ns(clockid_t clock) {
  timespec now;
  real_gettime(clock, &now);
  return int64_t(now.tv_sec) * kSecond + now.tv_nsec;
}

void begin_simulated_time() {
  for (clockid_t clock = 0; clock < kClocks; ++clock) {
    if (tells_time(clock)) begin_ns[clock] = clock_ns(clock);
  }
}

int64_t live_ns_of(clockid_t clock, const timespec& shown) {
  if (!tells_time(clock) || live_ns() < 0) return -1;
  return std::max<int64_t>(0, int64_t(shown.tv_sec) * kSecond + shown.tv_nsec - begin_ns[clock]);
}

}  // namespace presim

// The C library declares that `out` of the first two is never null; compilers rely on it.
#define PRESIM_REPLACES extern "C" __attribute__((visibility("default")))

PRESIM_REPLACES int clock_gettime(clockid_t clock, timespec* out) noexcept {
  if (clock == kOwn) return real_gettime(CLOCK_MONOTONIC, out);
  if (!tells_time(clock)) return real_gettime(clock, out);
  int64_t simulated = presim::live_ns();
  if (simulated < 0) return real_gettime(clock, out);
  simulated = std::max(simulated, presim::own_moment_ns());
  *out = split(begin_ns[clock] + simulated);
  return 0;
}

PRESIM_REPLACES int gettimeofday(timeval* out, void* zone) noexcept {
  if (zone != nullptr) *static_cast<struct timezone*>(zone) = {0, 0};
  timespec now;
  if (clock_gettime(CLOCK_REALTIME, &now) != 0) return -1;
  *out = {now.tv_sec, now.tv_nsec / 1000};
  return 0;
}

PRESIM_REPLACES time_t time(time_t* out) noexcept {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  if (out != nullptr) *out = now.tv_sec;
  return now.tv_sec;
}

PRESIM_REPLACES int timespec_get(timespec* out, int base) noexcept {
  return base == TIME_UTC && clock_gettime(CLOCK_REALTIME, out) == 0 ? base : 0;
}
