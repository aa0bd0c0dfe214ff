#include "live.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "clock.h"

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

// A program that queries repeatedly and does nothing else is waiting. It is recorded as a wait, so that time does not
// advance query by query.
bool has_ended(Ask ask, int64_t of) {
  constexpr int kPatience = 8;
  constexpr int64_t kApart_ns = 1000000;  // less frequent queries, such as those of NCCL's watchdog, are not a wait
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
