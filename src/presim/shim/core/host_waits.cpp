#include "host_waits.h"

#include <algorithm>
#include <atomic>
#include <mutex>

#include "events.h"
#include "live.h"
#include "own_time.h"
#include "streams.h"

namespace presim {
namespace {

std::atomic<const HostWaits*> waits{nullptr};
JointCalls of_device[kMaxDevices];  // guarded by calls_mutex, like those of streams and events

std::mutex& calls_mutex() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

JointCalls::iterator place_of(JointCalls& calls, uint32_t channel) {
  return std::lower_bound(calls.begin(), calls.end(), channel,
                          [](const JointCall& call, uint32_t wanted) { return call.channel < wanted; });
}

void add(JointCalls& calls, JointCall call) {
  auto place = place_of(calls, call.channel);
  if (place == calls.end() || place->channel != call.channel) calls.insert(place, call);
  else place->number = std::max(place->number, call.number);
}

// Calls that all ranks have made are dropped, so that the sets stay small.
void merge(JointCalls& calls, const JointCalls& others) {
  const HostWaits* answers = waits.load(std::memory_order_acquire);
  for (const JointCall& call : others) {
    if (!answers->is_over(call)) add(calls, call);
  }
}

void wait(const JointCalls& calls) {
  JointCalls wanted;
  {
    OwnTime tracking;
    std::lock_guard lock(calls_mutex());
    merge(wanted, calls);
  }
  if (!wanted.empty()) waits.load(std::memory_order_acquire)->wait(wanted);
}

}  // namespace

void answer_host_waits(const HostWaits* answers) {
  if (!live()) waits.store(answers, std::memory_order_release);
}

bool tracks_joint_calls() { return waits.load(std::memory_order_relaxed) != nullptr; }

void add_joint_call(Stream& stream, JointCall call) {
  if (!tracks_joint_calls()) return;
  std::lock_guard lock(calls_mutex());
  add(stream.calls, call);
  add(of_device[stream.device], call);
}

void add_joint_call(void* handle, JointCall call) {
  if (Stream* stream = find_stream(handle)) add_joint_call(*stream, call);
}

Stream*& replaying_stream() {
  static thread_local Stream* stream = nullptr;
  return stream;
}

void add_replayed_call(JointCall call) {
  if (Stream* stream = replaying_stream()) add_joint_call(*stream, call);
}

void record_joint_calls(const Stream& stream, Event& event) {
  if (!tracks_joint_calls()) return;
  OwnTime tracking;
  std::lock_guard lock(calls_mutex());
  event.calls.clear();
  merge(event.calls, stream.calls);
}

void follow_joint_calls(Stream& stream, const Event& event) {
  if (!tracks_joint_calls()) return;
  OwnTime tracking;
  std::lock_guard lock(calls_mutex());
  merge(stream.calls, event.calls);
}

void wait_for_joint_calls(const Stream& stream) {
  if (tracks_joint_calls()) wait(stream.calls);
}

void wait_for_joint_calls(const Event& event) {
  if (tracks_joint_calls()) wait(event.calls);
}

void wait_for_joint_calls(int device) {
  if (tracks_joint_calls()) wait(of_device[device]);
}

}  // namespace presim
