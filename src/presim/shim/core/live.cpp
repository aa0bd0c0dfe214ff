#include "live.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "clock.h"

namespace presim {

LiveClock::LiveClock() {
  const char* text = std::getenv("PRESIM_LIVE");
  long long launch = 0, event = 0;
  on_ = text != nullptr && std::sscanf(text, "%lf %lld %lld", &factor_, &launch, &event) == 3;
  launch_cost_ns_ = launch;
  event_cost_ns_ = event;
}

void LiveClock::appended(Kind kind, int64_t cpu_ns, int64_t value, int64_t count) {
  if (!on_) return;
  if (!begun_) {
    begin_simulated_time();
    since_.cpu_ns = cpu_ns;
    begun_ = true;
  }
  if (kind == Kind::HostWait) extra_ns_ += value;
  bool on_device = kind == Kind::Work || kind == Kind::Collective;
  bool on_stream = kind == Kind::EventRecord || kind == Kind::StreamWait;
  if (!on_device && !on_stream) return;
  extra_ns_ += on_device ? launch_cost_ns_ : event_cost_ns_;
  launches_ += count;
}

int64_t LiveClock::at(int64_t cpu_ns) const {
  return host_ns_ + std::llround(double(cpu_ns - since_.cpu_ns) * factor_) + extra_ns_ - since_.extra_ns;
}

void LiveClock::answered(const Moment& moment, const Answer& answer) {
  if (moment.cpu_ns < since_.cpu_ns) return;
  host_ns_ = std::max(answer.host_ns, at(moment.cpu_ns) - extra_ns_ + moment.extra_ns);  // never back
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

// A program that asks again and again, and nothing else meanwhile, waits: so it is taken down, and time need not pass
// question by question.
bool has_ended(Ask ask, int64_t of) {
  constexpr int kPatience = 8;
  constexpr int64_t kApart_ns = 1000000;  // whoever looks after something now and then, as NCCL's watchdog, does not wait
  static thread_local int misses = 0;
  static thread_local int64_t last_ns = 0;
  if (!live() || ask_now(ask, of).status != kNotYet) {
    misses = 0;
    return true;
  }
  int64_t now = clock_ns(CLOCK_MONOTONIC);
  misses = now - last_ns < kApart_ns ? misses + 1 : 1;
  last_ns = now;
  if (misses < kPatience) return false;
  misses = 0;
  if (ask == Ask::Event) append(Kind::EventSync, 0, of);
  else append(Kind::StreamSync, uint16_t(of));
  return true;
}

}  // namespace presim
