#include "enqueue.h"

#include "capture.h"

namespace presim {

void enqueue(Stream& stream, int32_t work, NodeType type, std::function<void()> effect) {
  if (stream.capture.load(std::memory_order_acquire) != nullptr) {
    Entry entry;
    entry.work = work;
    entry.effect = std::move(effect);
    if (capture_entry(stream, std::move(entry), type)) return;
  }
  append(Kind::Work, stream.index, 0, 0, work);
}

int enqueue_host(void* handle, void (*function)(void*), void* data) {
  if (function == nullptr) return kInvalidValue;
  if (int status = device_ready()) return status;
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  Entry entry;
  entry.effect = [function, data] { function(data); };
  if (!capture_entry(*stream, std::move(entry), NodeType::Host)) function(data);
  return kSuccess;
}

void log_work(void* handle, int32_t work) {
  Stream* stream = find_stream(handle);
  if (stream != nullptr) enqueue(*stream, work, NodeType::Kernel);
}

bool log_collective(void* handle, int32_t work, int64_t launch_group, bool held) {
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return false;
  Entry entry;
  entry.kind = Kind::Collective;
  entry.work = work;
  entry.object = launch_group;
  if (capture_entry(*stream, std::move(entry), NodeType::Kernel)) return true;
  if (held) hold(Kind::Collective, stream->index, launch_group, work);
  else append(Kind::Collective, stream->index, launch_group, 0, work);
  return false;
}

}  // namespace presim
