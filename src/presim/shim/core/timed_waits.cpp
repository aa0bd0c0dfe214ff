// Waits with an end: sleep, conditions, semaphores, select, poll, epoll.
//
// Their ends are moments on the program's clock, which is not the machine's where the clock is live. A thread waits for
// as long on the machine's clock, and finds its own clock at the end it waited for. For the main thread, whose sleep is
// host time of the rank, the simulated clock goes on by as much, and the log says so. It waits in fact only as long as
// something else can happen: a thread that runs or waits for anything but a lock, a child process.
//
// Without a live clock the main thread's sleep is taken down, and nothing else changes.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>

#include "clock.h"
#include "live.h"
#include "own_time.h"

namespace presim {
namespace {

constexpr int64_t kSecond = 1000000000;
constexpr int64_t kGlance_ns = 200000;  // how long the main thread waits before it looks whether anything can happen
constexpr int64_t kShort_ns = 5000000;  // Python's wait for its interpreter lock, while another thread has it: no sleep

timespec split(int64_t ns) { return {time_t(ns / kSecond), long(ns % kSecond)}; }
int64_t joined(const timespec& time) { return int64_t(time.tv_sec) * kSecond + time.tv_nsec; }
bool main_thread() { return gettid() == getpid(); }

template <class Function>
Function real(const char* name, const char* version = nullptr) {
  void* found = version != nullptr ? dlvsym(RTLD_NEXT, name, version) : nullptr;
  if (found == nullptr) found = dlsym(RTLD_NEXT, name);
  if (found == nullptr) std::abort();
  return reinterpret_cast<Function>(found);
}
#define PRESIM_REAL(name, ...) static auto real_##name = presim::real<decltype(&name)>(#name __VA_OPT__(, ) __VA_ARGS__)

size_t read_file(const std::string& path, char* text, size_t size) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ssize_t got = file >= 0 ? read(file, text, size - 1) : -1;
  if (file >= 0) close(file);
  text[got > 0 ? got : 0] = '\0';
  return got > 0 ? size_t(got) : 0;
}

// Of a thread: it waits for a lock without a time limit, so that somebody else has to go on first. NCCL's watchdogs look
// after collectives now and then, for ever, and answer nobody.
bool waits_for_others(const std::string& task) {
  char text[160], name[32];
  if (read_file(task + "/syscall", text, sizeof text) == 0) return access(task.c_str(), F_OK) != 0;  // it has ended
  int call = -1;
  unsigned long long limit = 1;
  bool waits = std::sscanf(text, "%d %*s %*s %*s %llx", &call, &limit) == 2 && call == SYS_futex;  // else "running"
  if (waits && limit == 0) return true;
  return waits && read_file(task + "/comm", name, sizeof name) > 0 && std::strncmp(name, "pt_nccl", 7) == 0;
}

bool has_children(const std::string& task) {
  char text[16];
  return read_file(task + "/children", text, sizeof text) > 0;
}

bool nothing_else_happens() {
  OwnWork observing;
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return false;
  bool nothing = true;
  std::string self = std::to_string(gettid());
  while (dirent* entry = nothing ? readdir(tasks) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    std::string task = std::string("/proc/self/task/") + entry->d_name;
    nothing = !has_children(task) && (self == entry->d_name || waits_for_others(task));
  }
  closedir(tasks);
  return nothing;
}

int64_t live_now() { return std::max(live_ns(), own_moment_ns()); }

// The thread has waited until a moment. Its clock shows it; the main thread's is everybody's.
void arrived(int64_t moment_ns, bool sleep) {
  int64_t now = live_ns();
  if (now < 0 || moment_ns <= now) return;
  if (main_thread() && sleep) append(Kind::HostWait, 0, 0, moment_ns - now);
  else own_moment_ns() = moment_ns;
}

enum class End { Time, Something, Glance };

// Waits up to a moment with `wait(ns)`, which waits on the machine's clock and tells whether the time is over.
// ``may_split``: two waits are as good as one; else End::Glance asks the caller to look whether it still has to wait.
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

// Sleep without a live clock is host time all the same.
void slept(int64_t ns) {
  if (main_thread() && ns > 0) append(Kind::HostWait, 0, 0, ns);
}

bool recording() { return log_open(); }

}  // namespace
}  // namespace presim

using namespace presim;

#define PRESIM_REPLACES extern "C" __attribute__((visibility("default")))

PRESIM_REPLACES int clock_nanosleep(clockid_t clock, int flags, const timespec* wanted, timespec* rest) {
  PRESIM_REAL(clock_nanosleep);
  bool until = (flags & TIMER_ABSTIME) != 0;
  if (wanted == nullptr || !recording()) return real_clock_nanosleep(clock, flags, wanted, rest);
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

namespace {

// A wait for something, up to a time on a clock of the program's. `wait(deadline)` takes one on the machine's clock and
// returns ETIMEDOUT, as a status or in errno, when it is reached.
// ``spurious``: what waits may be woken for nothing, and must not be sent to wait twice: it could miss a signal.
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

// What a condition's deadline is measured by.
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

namespace {

// A wait for descriptors, for at most `ns`. `wait(ns)` returns 0 when that time is over. Without descriptors it is sleep.
template <class Wait>
int wait_for_descriptors(int64_t ns, bool none, Wait wait) {
  if (ns <= 0 || !recording()) return wait(ns);
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
