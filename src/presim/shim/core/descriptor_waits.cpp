// Timed waits for file descriptors: see timed_waits.h.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/time.h>

#include "timed_waits.h"

using namespace presim;

namespace {

// A wait for file descriptors of at most `ns`. `wait(ns)` returns 0 on a timeout. Without descriptors it is a sleep.
template <class Wait>
int wait_for_descriptors(int64_t ns, bool none, Wait wait) {
  if (ns <= 0 || !log_open()) return wait(ns);
  if (live_ns() < 0) {
    int ready = wait(ns);
    if (ready == 0 && none) slept(ns);
    return ready;
  }
  int64_t moment = live_now() + ns;
  int ready = 0;
  auto over = [&](int64_t part) { return (ready = wait(part)) == 0; };
  if (none) wait_until(moment, true, over);
  else if (over(ns)) arrived(moment, true);
  return ready;
}

}  // namespace

PRESIM_REPLACES int select(int count, fd_set* in, fd_set* out, fd_set* other, timeval* timeout) {
  PRESIM_REAL(select);
  if (timeout == nullptr) return real_select(count, in, out, other, timeout);
  int64_t ns = int64_t(timeout->tv_sec) * kSecond + timeout->tv_usec * 1000;
  return wait_for_descriptors(ns, count == 0, [&](int64_t part) {
    timeval left{time_t(part / kSecond), suseconds_t(part % kSecond / 1000)};
    return real_select(count, in, out, other, &left);
  });
}

PRESIM_REPLACES int poll(pollfd* descriptors, nfds_t count, int timeout_ms) {
  PRESIM_REAL(poll);
  return wait_for_descriptors(int64_t(timeout_ms) * 1000000, count == 0, [&](int64_t part) {
    return real_poll(descriptors, count, timeout_ms <= 0 ? timeout_ms : int((part + 999999) / 1000000));
  });
}

PRESIM_REPLACES int epoll_wait(int file, epoll_event* events, int most, int timeout_ms) {
  PRESIM_REAL(epoll_wait);
  return wait_for_descriptors(int64_t(timeout_ms) * 1000000, false,
                              [&](int64_t) { return real_epoll_wait(file, events, most, timeout_ms); });
}

PRESIM_REPLACES int epoll_pwait(int file, epoll_event* events, int most, int timeout_ms, const sigset_t* signals) {
  PRESIM_REAL(epoll_pwait);
  return wait_for_descriptors(int64_t(timeout_ms) * 1000000, false,
                              [&](int64_t) { return real_epoll_pwait(file, events, most, timeout_ms, signals); });
}
