#include "streams.h"

#include <algorithm>
#include <string>

#include "capture.h"
#include "endings.h"
#include "events.h"
#include "pools.h"
#include "queries.h"
#include "recorder.h"
#include "shared_devices.h"
#include "slab.h"
#include "visible_gpus.h"

namespace presim {
namespace {

constexpr size_t kMostStreams = 60000;  // Record::stream has 16 bits
using Streams = Slab<Stream, kMostStreams>;

Streams& all() {
  static auto* instance = new Streams;
  return *instance;
}

std::atomic<int> next_index{1};
std::atomic<Stream*> default_of[kMaxDevices];
std::atomic<bool> default_used{false};
std::mutex defaults_mutex;
thread_local Stream* default_of_thread[kMaxDevices] = {};

uint16_t new_index() { return uint16_t(std::min(next_index.fetch_add(1), int(kMostStreams))); }

Stream* make(int device, unsigned flags, int priority, int index) {
  use_gpu(gpu_of(device));
  Stream* stream = all().acquire();
  if (stream == nullptr) return nullptr;
  stream->device = uint16_t(device);
  stream->flags = flags;
  stream->priority = std::clamp(priority, kGreatestPriority, kLeastPriority);
  stream->index = index >= 0 ? uint16_t(index) : new_index();
  uint16_t recorded = recorded_device(device);
  note("stream index=" + std::to_string(stream->index) + " device=" + std::to_string(device) +
       " priority=" + std::to_string(stream->priority) + " nonblocking=" + std::to_string(flags & kStreamNonBlocking) +
       (recorded > 0 ? " recorded_device=" + std::to_string(recorded) : ""));
  return stream;
}

// Index 0 is the default stream used first: a process has one device, which need not be device 0.
Stream* default_stream(int device) {
  Stream* found = default_of[device].load(std::memory_order_acquire);
  if (found != nullptr) return found;
  std::lock_guard lock(defaults_mutex);
  found = default_of[device].load();
  if (found == nullptr) {
    found = make(device, 0, 0, default_used.exchange(true) ? -1 : 0);
    default_of[device].store(found, std::memory_order_release);
  }
  return found;
}

Stream* thread_stream(int device) {
  if (default_of_thread[device] == nullptr) default_of_thread[device] = make(device, 0, 0, -1);
  return default_of_thread[device];
}

}  // namespace

bool is_default_handle(const void* handle) { return reinterpret_cast<uintptr_t>(handle) <= 1; }

int create_stream(Stream** out, unsigned flags, int priority) {
  if (out == nullptr || flags > kStreamNonBlocking) return kInvalidValue;
  if (int status = device_ready()) return status;
  *out = make(current_device(), flags, priority, -1);
  return *out != nullptr ? kSuccess : kOutOfMemory;
}

int destroy_stream(void* handle) {
  Stream* stream = all().find(handle);
  if (stream == nullptr) return kInvalidHandle;
  leave_capture(*stream);
  return all().release(stream) ? kSuccess : kInvalidHandle;
}

Stream* find_stream(void* handle) {
  if (reinterpret_cast<uintptr_t>(handle) > 2) return all().find(handle);
  if (device_ready() != kSuccess) return nullptr;
  return is_default_handle(handle) ? default_stream(current_device()) : thread_stream(current_device());
}

int synchronize_stream(void* handle) {
  if (int status = device_ready()) return status;
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (int status = refuse_in_capture(*stream)) return status;
  trim_pools_at_sync(stream->device);
  await_stream(*stream);
  return kSuccess;
}

void wait_for_stream(uint16_t index) {
  int64_t serial = latest_serial();
  append(Kind::StreamSync, index);
  saw_end(index, serial);
}

void wait_for_device() {
  int64_t serial = latest_serial();
  append(Kind::DeviceSync, 0, current_device());
  saw_end_of_all(serial);
}

void await_stream(const Stream& stream) {
  wait_for_stream(stream.index);
  wait_for_joint_calls(stream);
}

int query_stream(void* handle) {
  if (int status = device_ready()) return status;
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (int status = refuse_in_capture(*stream)) return status;
  return stream_has_ended(stream->index) ? kSuccess : kNotReady;
}

int synchronize_device() {
  if (int status = device_ready()) return status;
  if (int status = refuse_unsafe_call()) return status;
  trim_pools_at_sync(current_device());
  wait_for_device();
  wait_for_joint_calls(current_device());
  return kSuccess;
}

}  // namespace presim
