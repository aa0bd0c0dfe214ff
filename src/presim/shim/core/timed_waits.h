// Timed waits: sleep (sleep.cpp), conditions, semaphores and locks (lock_waits.cpp), select, poll, epoll
// (descriptor_waits.cpp).
//
// Deadlines are on the program's clock, which differs from the machine's clock with a live clock. A thread waits for
// the same duration on the machine's clock, and then sees its own clock at the deadline. The main thread's sleep is
// host time of the rank: the simulated clock advances by it and it is logged. The main thread actually waits only
// while something can happen: a thread that runs or waits for anything but a lock, or a child process.
//
// Without a live clock, the main thread's sleep is logged and nothing else changes.
#pragma once
#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>

#include "clock.h"
#include "live.h"
#include "recorder.h"

namespace presim {

constexpr int64_t kSecond = 1000000000;
constexpr int64_t kGlance_ns = 200000;  // time until the main thread checks whether anything can happen
constexpr int64_t kShort_ns = 5000000;  // Python's wait for its interpreter lock; not a sleep

inline timespec split(int64_t ns) { return {time_t(ns / kSecond), long(ns % kSecond)}; }
inline int64_t joined(const timespec& time) { return int64_t(time.tv_sec) * kSecond + time.tv_nsec; }
inline bool main_thread() { return gettid() == getpid(); }
inline int64_t live_now() { return std::max(live_ns(), own_moment_ns()); }

// The C library's version of a function that is replaced here.
template <class Function>
Function real(const char* name, const char* version = nullptr) {
  void* found = version != nullptr ? dlvsym(RTLD_NEXT, name, version) : nullptr;
  if (found == nullptr) found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function>(found);
}
#define PRESIM_REAL(name, ...) static auto real_##name = presim::real<decltype(&name)>(#name __VA_OPT__(, ) __VA_ARGS__)

#define PRESIM_REPLACES extern "C" __attribute__((visibility("default")))

// Whether no other thread and no child process can make progress.
bool nothing_else_happens();

// The thread has waited until a moment. Its clock shows that moment; the main thread's clock applies to all threads.
void arrived(int64_t moment_ns, bool sleep);

// Sleep is host time also without a live clock.
void slept(int64_t ns);

enum class End { Time, Something, Glance };

// Waits until a moment with `wait(ns)`, which waits on the machine's clock and returns whether the time has passed.
// ``may_split``: the wait may be split in two; otherwise End::Glance requests the caller to check whether it still has
// to wait.
template <class Wait>
End wait_until(int64_t moment_ns, bool may_split, Wait wait) {
  static thread_local int64_t glanced_ns = -1;
  int64_t left = std::max<int64_t>(0, moment_ns - live_now());
  bool sleep = left > kShort_ns;
  own_moment_ns() = -1;
  if (main_thread() && sleep && glanced_ns != moment_ns) {
    if (!wait(kGlance_ns)) return End::Something;
    bool over = nothing_else_happens();
    if (!over && !may_split) return glanced_ns = moment_ns, End::Glance;
    left = over ? 0 : left - kGlance_ns;
  }
  if (left > 0 && !wait(left)) return End::Something;
  arrived(moment_ns, sleep);
  return End::Time;
}

}  // namespace presim
