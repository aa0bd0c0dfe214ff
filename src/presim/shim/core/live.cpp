#include "live.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "clock.h"

namespace presim {
namespace {

constexpr int64_t kMiB = 1 << 20;

int64_t of_bytes(int64_t ns_per_MiB, int64_t bytes) { return std::llround(double(ns_per_MiB) * double(bytes) / kMiB); }

}  // namespace

LiveClock::LiveClock() {
  const char* text = std::getenv("PRESIM_LIVE");
  if (text == nullptr) return;
  std::istringstream fields(text);
  fields >> pace_;
  for (int64_t* cost : {&costs_.launch, &costs_.product, &costs_.transfer, &costs_.collective, &costs_.event,
                        &costs_.device_alloc, &costs_.device_alloc_MiB, &costs_.device_free, &costs_.device_free_MiB,
                        &costs_.lock, &costs_.lock_MiB, &costs_.unlock, &costs_.unlock_MiB, &costs_.first_touch_MiB}) {
    fields >> *cost;
  }
  on_ = bool(fields);
}

int64_t LiveClock::host_call_ns(HostCall call, int64_t bytes) const {
  if (call == HostCall::FirstTouch) return of_bytes(costs_.first_touch_MiB, bytes);
  bool small = bytes <= kMiB;  // the driver locked such memory before
  if (call == HostCall::Lock) return small ? costs_.lock : of_bytes(costs_.lock_MiB, bytes);
  return small ? costs_.unlock : of_bytes(costs_.unlock_MiB, bytes);
}

int64_t LiveClock::cost_ns(Kind kind, int32_t work, int64_t object, int64_t value) const {
  if (!on_) return 0;
  if (kind == Kind::HostCall) return host_call_ns(HostCall(object), value);
  if (kind == Kind::SegmentAlloc) return costs_.device_alloc + of_bytes(costs_.device_alloc_MiB, value);
  if (kind == Kind::SegmentFree) return costs_.device_free + of_bytes(costs_.device_free_MiB, value);
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

}  // namespace presim
