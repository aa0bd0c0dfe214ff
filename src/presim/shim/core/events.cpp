#include "events.h"

#include <algorithm>

#include "capture.h"
#include "clock.h"
#include "endings.h"
#include "live.h"
#include "queries.h"
#include "recorder.h"
#include "slab.h"

namespace presim {
namespace {

constexpr size_t kMostEvents = size_t(1) << 24;
constexpr unsigned kExternal = 1;  // the record or wait is a node of the graph and visible outside of it
using Events = Slab<Event, kMostEvents>;

Events& all() {
  static auto* instance = new Events;
  return *instance;
}

std::atomic<int64_t> next_serial{1};

int captured_wait(Stream& stream, Event& event) {
  std::lock_guard lock(capture_mutex());
  return join_capture(stream, event);
}

}  // namespace

int64_t take_serials(int64_t count) { return next_serial.fetch_add(count, std::memory_order_relaxed); }
int64_t latest_serial() { return next_serial.load(std::memory_order_relaxed) - 1; }

int create_event(Event** out, unsigned flags) {
  constexpr unsigned kKnown = 1 | kEventDisableTiming | kEventInterprocess;
  if (out == nullptr || flags > kKnown) return kInvalidValue;
  if ((flags & kEventInterprocess) != 0 && (flags & kEventDisableTiming) == 0) return kInvalidValue;
  if (int status = device_ready()) return status;
  *out = all().acquire();
  if (*out == nullptr) return kOutOfMemory;
  (*out)->flags = flags;
  return kSuccess;
}

int destroy_event(void* handle) {
  Event* event = all().find(handle);
  return event != nullptr && all().release(event) ? kSuccess : kInvalidHandle;
}

Event* find_event(void* handle) { return all().find(handle); }

int record_event(void* handle, void* stream_handle, unsigned flags) {
  if (int status = device_ready()) return status;
  Event* event = find_event(handle);
  Stream* stream = find_stream(stream_handle);
  if (event == nullptr || stream == nullptr) return kInvalidHandle;
  if (stream->capture.load(std::memory_order_acquire) != nullptr) {
    return record_in_capture(*stream, *event, (flags & kExternal) != 0);
  }
  int64_t serial = take_serials(1);
  event->capture_id = 0;
  event->host_ns.store(clock_ns(CLOCK_MONOTONIC), std::memory_order_relaxed);
  event->stream.store(stream->index, std::memory_order_relaxed);
  event->serial.store(serial, std::memory_order_release);
  append(Kind::EventRecord, stream->index, serial);
  record_joint_calls(*stream, *event);
  return kSuccess;
}

int wait_event(void* stream_handle, void* handle, unsigned flags) {
  if (int status = device_ready()) return status;
  Event* event = find_event(handle);
  Stream* stream = find_stream(stream_handle);
  if (event == nullptr || stream == nullptr) return kInvalidHandle;
  bool captured = event->capture_id != 0;
  bool capturing = stream->capture.load(std::memory_order_acquire) != nullptr;
  if (capturing && (flags & kExternal) != 0) return wait_outside_capture(*stream, *event);
  if (captured) return captured_wait(*stream, *event);
  int64_t serial = event->serial.load(std::memory_order_acquire);
  if (serial == 0) return kSuccess;
  if (capturing) return invalidate_capture(*stream, kCaptureIsolation);
  append(Kind::StreamWait, stream->index, serial);
  follow_joint_calls(*stream, *event);
  return kSuccess;
}

int query_event(void* handle) {
  if (int status = device_ready()) return status;
  Event* event = find_event(handle);
  if (event == nullptr) return kInvalidHandle;
  if (int status = refuse_unsafe_call()) return status;
  if (capture_active(event->capture_id)) return kCapturedEvent;
  int64_t serial = event->serial.load(std::memory_order_acquire);
  return serial == 0 || recording_has_ended(event->stream.load(std::memory_order_relaxed), serial) ? kSuccess : kNotReady;
}

int synchronize_event(void* handle) {
  if (int status = device_ready()) return status;
  Event* event = find_event(handle);
  if (event == nullptr) return kInvalidHandle;
  if (capture_active(event->capture_id)) return kCapturedEvent;
  int64_t serial = event->serial.load(std::memory_order_acquire);
  if (serial == 0) return kSuccess;
  append(Kind::EventSync, 0, serial);
  saw_end(event->stream.load(std::memory_order_relaxed), serial);
  wait_for_joint_calls(*event);
  return kSuccess;
}

// Simulated time between the ends of two recordings. Without a simulation: host time, at least one microsecond, so
// that programs do not divide by zero.
int elapsed_ms(float* out, void* start_handle, void* end_handle) {
  if (out == nullptr) return kInvalidValue;
  if (int status = device_ready()) return status;
  Event *start = find_event(start_handle), *end = find_event(end_handle);
  if (start == nullptr || end == nullptr) return kInvalidHandle;
  if (((start->flags | end->flags) & kEventDisableTiming) != 0) return kInvalidHandle;
  if (start->serial == 0 || end->serial == 0) return kInvalidHandle;
  Answer answer = ask_now(Ask::Elapsed, start->serial, end->serial);
  if (answer.status == kNotYet) return kNotReady;
  if (answer.status == kYes) {
    *out = float(double(answer.value) / 1e6);
    return kSuccess;
  }
  int64_t elapsed = end->host_ns - start->host_ns;
  if (start != end && elapsed >= 0) elapsed = std::max<int64_t>(elapsed, 1000);
  *out = float(double(elapsed) / 1e6);
  return kSuccess;
}

}  // namespace presim
