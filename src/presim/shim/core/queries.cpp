#include "queries.h"

#include <sys/prctl.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "clock.h"
#include "endings.h"
#include "events.h"
#include "live.h"
#include "recorder.h"
#include "simulator.h"

namespace presim {
namespace {

// NCCL's watchdogs look at the time of this machine, ten times a second, and release what a collective used once they see
// its end. To them the device takes no time, so that what they release does not depend on the speed of this machine.
bool is_watchdog() {
  static thread_local const bool is = [] {
    char name[16] = {};
    return prctl(PR_GET_NAME, name) == 0 && std::strncmp(name, "pt_nccl", 7) == 0;
  }();
  return is;
}

// A program that queries one thing repeatedly and does nothing else is waiting. It is recorded as a wait, so that time
// does not advance query by query.
class Polling {
 public:
  // Whether this is a wait. `ask`, `of`: a query that was answered "not yet".
  bool missed(Ask ask, int64_t of, const Progress& now) {
    bool again = ask == ask_ && of == of_ && now.records == records_ && clock_ns(CLOCK_MONOTONIC) - missed_ns_ < kApart_ns;
    misses_ = again ? misses_ + 1 : 1;
    ask_ = ask, of_ = of, records_ = now.records, missed_ns_ = clock_ns(CLOCK_MONOTONIC);
    return misses_ >= kPatience;
  }

 private:
  static constexpr int kPatience = 8;
  static constexpr int64_t kApart_ns = 10000000;  // less frequent queries are not a wait
  Ask ask_ = Ask::Now;
  int64_t of_ = 0;
  uint64_t records_ = 0;
  int64_t missed_ns_ = 0;
  int misses_ = 0;
};

// Answers "not yet" without asking while the host cannot have come so far. Once a stream may be full, a quarter of
// the time until then is for the host's own work, the rest for waits. PyTorch's allocator queries the same events at
// each allocation.
class Unended {
 public:
  void learn(uint16_t stream, int64_t serial, const Progress& then, const Answer& answer) {
    std::lock_guard lock(mutex_);
    by_stream_[stream] = {serial, answer.value, answer.room, answer.ahead, answer.pace, then};
  }

  bool holds(uint16_t stream, int64_t serial, const Progress& now) {
    constexpr double kFaster = 1.5;          // than its recent pace
    constexpr double kDearestCall_ns = 12e3;  // of those that do not count as waits
    std::lock_guard lock(mutex_);
    auto found = by_stream_.find(stream);
    if (found == by_stream_.end()) return false;
    const Fact& fact = found->second;
    auto launches = int64_t(now.launches - fact.then.launches);
    if (serial < fact.serial || now.waits != fact.then.waits || launches >= std::max(fact.room, fact.ahead)) return false;
    double passed_ns = kFaster * fact.pace * double(now.cpu_ns - fact.then.cpu_ns) + kDearestCall_ns * double(launches);
    return passed_ns < double(launches < fact.room ? fact.least_ns : fact.least_ns / 4);
  }

 private:
  struct Fact {
    int64_t serial, least_ns, room, ahead;
    double pace;
    Progress then;
  };
  std::mutex mutex_;
  std::unordered_map<uint16_t, Fact> by_stream_;  // the last answer for each stream
};

Unended& unended() {
  static auto* instance = new Unended;
  return *instance;
}

// Advances to the end of what the program waits for, if it does; returns whether it has ended now.
bool ends_by_waiting(Ask ask, int64_t of, const Progress& now) {
  static thread_local Polling polling;
  if (!polling.missed(ask, of, now)) return false;
  if (ask == Ask::Event) append(Kind::EventSync, 0, of);
  else append(Kind::StreamSync, uint16_t(of));
  return true;
}

bool is_simulated() { return !is_watchdog() && simulator_answers(); }

std::atomic<int64_t> query_count{0};  // the launcher compares ranks by the numbers of their queries
std::atomic<int64_t> none_until{0};   // number of the first query that may not be answered "not yet"

bool event_has_ended(uint16_t stream, int64_t serial, int64_t number) {
  Progress now = progress();
  if (number >= none_until && !unended().holds(stream, serial, now)) {
    Answer answer = ask_now(Ask::Event, serial, number);
    if (answer.status != kNobody) saw_end_of_all(answer.ended - 1);
    if (answer.status != kNotYet) return true;
    none_until = answer.until;
    unended().learn(stream, serial, now, answer);
  }
  return ends_by_waiting(Ask::Event, serial, now);
}

}  // namespace

bool recording_has_ended(uint16_t stream, int64_t serial) {
  if (!is_simulated()) return true;
  int64_t number = query_count++;
  if (has_seen_end(stream, serial)) return true;
  if (!event_has_ended(stream, serial, number)) return false;
  saw_end(stream, serial);
  return true;
}

bool stream_has_ended(uint16_t stream) {
  if (!is_simulated()) return true;
  int64_t number = query_count++;
  int64_t serial = latest_serial();
  Progress now = progress();
  bool pending = ask_now(Ask::Stream, stream, number).status == kNotYet;
  if (pending && !ends_by_waiting(Ask::Stream, stream, now)) return false;
  saw_end(stream, serial);
  return true;
}

}  // namespace presim
