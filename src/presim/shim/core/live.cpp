#include "live.h"

#include <sys/prctl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include "clock.h"
#include "endings.h"
#include "events.h"

namespace presim {

LiveClock::LiveClock() {
  const char* text = std::getenv("PRESIM_LIVE");
  on_ = text != nullptr && std::sscanf(text, "%lf %lld %lld %lld %lld %lld", &pace_, &costs_.launch, &costs_.product,
                                       &costs_.transfer, &costs_.collective, &costs_.event) == 6;
}

int64_t LiveClock::cost_ns(Kind kind, int32_t work) const {
  if (!on_) return 0;
  if (kind == Kind::Collective) return costs_.collective;
  if (kind == Kind::EventRecord || kind == Kind::StreamWait) return costs_.event;
  if (kind != Kind::Work) return 0;
  std::string_view text = interned_text(work);
  if (text.substr(0, 5) == "gemm ") return costs_.product;
  return text.substr(0, 5) == "copy " ? costs_.transfer : costs_.launch;
}

void LiveClock::appended(Kind kind, int64_t cpu_ns, int64_t value, int64_t cost_ns, int64_t count) {
  if (!on_) return;
  if (!begun_) {
    begin_simulated_time();
    since_.cpu_ns = cpu_ns;
    begun_ = true;
  }
  if (kind == Kind::HostWait) {  // `value` comes from the shown clock
    shown_ns_ = show(cpu_ns) + value;
    extra_ns_ += value;
  }
  extra_ns_ += cost_ns;
  bool on_device = kind == Kind::Work || kind == Kind::Collective;
  if (on_device || kind == Kind::EventRecord || kind == Kind::StreamWait) launches_ += count;
}

int64_t LiveClock::show(int64_t cpu_ns) {
  int64_t stands_ns = host_ns_ + std::llround(double(cpu_ns - since_.cpu_ns) * pace_) + extra_ns_ - since_.extra_ns;
  return shown_ns_ = std::max(shown_ns_, stands_ns);
}

void LiveClock::answered(const Moment& moment, const Answer& answer) {
  if (moment.cpu_ns < since_.cpu_ns) return;
  host_ns_ = answer.host_ns;
  pace_ = answer.pace;
  since_ = moment;
  launches_ = 0;
  room_ = answer.room;
}

int64_t& own_moment_ns() {
  static thread_local int64_t moment = -1;
  return moment;
}

bool live() {
  static const bool asked = std::getenv("PRESIM_LIVE") != nullptr;
  return asked;
}

namespace {

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
  bool missed(Ask ask, int64_t of, int64_t asked_ns) {
    uint64_t records = record_count();
    bool again = ask == ask_ && of == of_ && records == records_ && asked_ns - answered_ns_ < kApart_ns;
    misses_ = again ? misses_ + 1 : 1;
    ask_ = ask, of_ = of, records_ = records, answered_ns_ = clock_ns(CLOCK_MONOTONIC);
    return misses_ >= kPatience;
  }

 private:
  static constexpr int kPatience = 8;
  static constexpr int64_t kApart_ns = 1000000;  // less frequent queries, such as those of NCCL's watchdog, are not a wait
  Ask ask_ = Ask::Now;
  int64_t of_ = 0;
  uint64_t records_ = 0;
  int64_t answered_ns_ = 0;
  int misses_ = 0;
};

// Whether it has not ended at the time of the query. Advances to the end if the program waits for it.
bool is_pending(Ask ask, int64_t of, const std::function<void()>& wait) {
  static thread_local Polling polling;
  if (!live() && is_watchdog()) return false;
  int64_t asked_ns = clock_ns(CLOCK_MONOTONIC);
  if (ask_now(ask, of).status != kNotYet) return false;
  if (!polling.missed(ask, of, asked_ns)) return true;
  wait();
  return false;
}

}  // namespace

bool recording_has_ended(uint16_t stream, int64_t serial) {
  if (has_seen_end(stream, serial)) return true;
  if (is_pending(Ask::Event, serial, [serial] { append(Kind::EventSync, 0, serial); })) return false;
  saw_end(stream, serial);
  return true;
}

bool stream_has_ended(uint16_t stream) {
  int64_t serial = latest_serial();
  if (is_pending(Ask::Stream, stream, [stream] { append(Kind::StreamSync, stream); })) return false;
  saw_end(stream, serial);
  return true;
}

}  // namespace presim
