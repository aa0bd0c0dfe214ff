// Timed waits for conditions, semaphores and locks: see timed_waits.h.
#include <pthread.h>
#include <semaphore.h>

#include <cerrno>

#include "timed_waits.h"

using namespace presim;

namespace {

// A wait until a time on one of the program's clocks. `wait(deadline)` takes a time on the machine's clock and returns
// ETIMEDOUT, as a status or in errno, when it passes. ``spurious``: the wait may wake spuriously and must not be
// split: it could miss a signal.
template <class Wait>
int wait_for_something(clockid_t clock, const timespec* deadline, bool spurious, Wait wait) {
  int64_t moment = deadline != nullptr ? live_ns_of(clock, *deadline) : -1;
  if (moment < 0) return wait(deadline);
  int status = 0;
  End end = wait_until(moment, !spurious, [&](int64_t ns) {
    timespec end = split(clock_ns(clock) + ns);
    status = wait(&end);
    return status == ETIMEDOUT || (status == -1 && errno == ETIMEDOUT);
  });
  return end == End::Glance ? 0 : status;
}

// The clock of a condition's deadline.
clockid_t clock_of(const pthread_cond_t* condition) {
  constexpr unsigned kClockFlag = 2;  // glibc's, in __wrefs: the attribute that pthread_condattr_setclock leaves
  return (condition->__data.__wrefs & kClockFlag) != 0 ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

}  // namespace

PRESIM_REPLACES int pthread_cond_timedwait(pthread_cond_t* condition, pthread_mutex_t* mutex, const timespec* end) {
  PRESIM_REAL(pthread_cond_timedwait, "GLIBC_2.3.2");
  return wait_for_something(clock_of(condition), end, true,
                            [&](const timespec* real_end) { return real_pthread_cond_timedwait(condition, mutex, real_end); });
}

PRESIM_REPLACES int pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                                           const timespec* end) {
  PRESIM_REAL(pthread_cond_clockwait);
  return wait_for_something(clock, end, true, [&](const timespec* real_end) {
    return real_pthread_cond_clockwait(condition, mutex, clock, real_end);
  });
}

PRESIM_REPLACES int sem_timedwait(sem_t* semaphore, const timespec* end) {
  PRESIM_REAL(sem_timedwait);
  return wait_for_something(CLOCK_REALTIME, end, false, [&](const timespec* real_end) { return real_sem_timedwait(semaphore, real_end); });
}

PRESIM_REPLACES int sem_clockwait(sem_t* semaphore, clockid_t clock, const timespec* end) {
  PRESIM_REAL(sem_clockwait);
  return wait_for_something(clock, end, false, [&](const timespec* real_end) { return real_sem_clockwait(semaphore, clock, real_end); });
}

PRESIM_REPLACES int pthread_mutex_timedlock(pthread_mutex_t* mutex, const timespec* end) noexcept {
  PRESIM_REAL(pthread_mutex_timedlock);
  return wait_for_something(CLOCK_REALTIME, end, false, [&](const timespec* real_end) { return real_pthread_mutex_timedlock(mutex, real_end); });
}

PRESIM_REPLACES int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock, const timespec* end) noexcept {
  PRESIM_REAL(pthread_mutex_clocklock);
  return wait_for_something(clock, end, false, [&](const timespec* real_end) { return real_pthread_mutex_clocklock(mutex, clock, real_end); });
}
