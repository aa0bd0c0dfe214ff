#include "capture.h"

#include <pthread.h>

#include <algorithm>
#include <unordered_set>

#include "fork.h"

namespace presim {
namespace {

uint64_t next_id = 1;               // guarded by capture_mutex()
std::atomic<int> active_count{0};   // running captures; read at every event query
thread_local CaptureMode thread_mode = CaptureMode::Global;

std::vector<Capture*>& active() {
  static auto* captures = new std::vector<Capture*>;
  return *captures;
}

void remove_member(Stream& stream) {
  stream.last.clear();
  stream.capture.store(nullptr, std::memory_order_release);
}

void finish(Capture* capture) {
  for (Stream* member : capture->members) remove_member(*member);
  auto& captures = active();
  captures.erase(std::remove(captures.begin(), captures.end(), capture), captures.end());
  --active_count;
  delete capture;
}

// Every node of the graph must precede the last node of the origin; otherwise a stream was not joined.
bool all_joined(const Capture& capture) {
  for (Stream* member : capture.members) {
    if (member == capture.origin || member->last.empty()) continue;
    std::unordered_set<const Node*> reached(capture.origin->last.begin(), capture.origin->last.end());
    std::vector<const Node*> open(reached.begin(), reached.end());
    while (!open.empty()) {
      const Node* node = open.back();
      open.pop_back();
      for (const Node* before : node->dependencies) {
        if (reached.insert(before).second) open.push_back(before);
      }
    }
    for (const Node* node : member->last) {
      if (reached.count(node) == 0) return false;
    }
  }
  return true;
}

bool forbids(const Capture& capture, unsigned long thread) {
  if (thread_mode == CaptureMode::Relaxed || capture.mode == CaptureMode::Relaxed) return false;
  if (capture.thread == thread) return true;
  return capture.mode == CaptureMode::Global && thread_mode == CaptureMode::Global;
}

}  // namespace

std::mutex& capture_mutex() {
  static auto* mutex = [] {
    auto* made = new std::mutex;
    hold_across_fork(*made, ForkOrder::Graphs);
    return made;
  }();
  return *mutex;
}

int begin_capture(void* handle, int mode, Graph* into, Node* const* dependencies, size_t count) {
  if (mode < 0 || mode > 2) return kInvalidValue;
  if (int status = device_ready()) return status;
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  if (is_default_handle(handle)) return kCaptureUnsupported;
  std::lock_guard lock(capture_mutex());
  if (stream->capture != nullptr) return kIllegalState;
  Graph* graph = into;
  if (graph == nullptr) create_graph(&graph);
  stream->last.assign(dependencies, dependencies + count);
  auto* capture = new Capture{next_id++, graph, into == nullptr, stream, CaptureMode(mode), pthread_self(), false, {stream}};
  active().push_back(capture);
  ++active_count;
  stream->capture.store(capture, std::memory_order_release);
  return kSuccess;
}

int end_capture(void* handle, Graph** out) {
  if (out == nullptr) return kInvalidValue;
  Stream* stream = find_stream(handle);
  if (stream == nullptr) return kInvalidHandle;
  *out = nullptr;
  std::lock_guard lock(capture_mutex());
  Capture* capture = stream->capture;
  if (capture == nullptr) return kIllegalState;
  if (capture->origin != stream) return kCaptureUnmatched;
  if (capture->mode != CaptureMode::Relaxed && capture->thread != pthread_self()) return kCaptureWrongThread;
  int status = capture->invalidated ? kCaptureInvalidated : all_joined(*capture) ? kSuccess : kCaptureUnjoined;
  if (status == kSuccess) {
    *out = capture->graph;
  } else if (capture->own_graph) {
    destroy_graph(capture->graph);
  }
  finish(capture);
  return status;
}

CaptureStatus capture_status(Stream& stream) {
  if (stream.capture.load(std::memory_order_acquire) == nullptr) return CaptureStatus::None;
  std::lock_guard lock(capture_mutex());
  Capture* capture = stream.capture;
  if (capture == nullptr) return CaptureStatus::None;
  return capture->invalidated ? CaptureStatus::Invalidated : CaptureStatus::Active;
}

int exchange_capture_mode(int* mode) {
  if (mode == nullptr || *mode < 0 || *mode > 2) return kInvalidValue;
  auto before = int(thread_mode);
  thread_mode = CaptureMode(*mode);
  *mode = before;
  return kSuccess;
}

bool capture_active(uint64_t id) {
  if (id == 0 || active_count.load(std::memory_order_acquire) == 0) return false;
  std::lock_guard lock(capture_mutex());
  return std::any_of(active().begin(), active().end(), [id](Capture* c) { return c->id == id; });
}

bool any_capture() { return active_count.load(std::memory_order_acquire) != 0; }

int invalidate_capture(Stream& stream, int status) {
  std::lock_guard lock(capture_mutex());
  Capture* capture = stream.capture;
  if (capture != nullptr) capture->invalidated = true;
  return status;
}

int refuse_in_capture(Stream& stream) {
  if (stream.capture.load(std::memory_order_acquire) == nullptr) return refuse_unsafe_call();
  return invalidate_capture(stream, kCaptureUnsupported);
}

int refuse_unsafe_call() {
  if (active_count.load(std::memory_order_acquire) == 0) return kSuccess;
  std::lock_guard lock(capture_mutex());
  for (Capture* capture : active()) {
    if (!forbids(*capture, pthread_self())) continue;
    capture->invalidated = true;
    return kCaptureUnsupported;
  }
  return kSuccess;
}

void leave_capture(Stream& stream) {
  if (stream.capture.load(std::memory_order_acquire) == nullptr) return;
  std::lock_guard lock(capture_mutex());
  Capture* capture = stream.capture;
  if (capture == nullptr) return;
  capture->invalidated = true;
  if (capture->origin == &stream) return finish(capture);
  auto& members = capture->members;
  members.erase(std::remove(members.begin(), members.end(), &stream), members.end());
  remove_member(stream);
}

bool capture_entry(Stream& stream, Entry entry, NodeType type) {
  if (stream.capture.load(std::memory_order_acquire) == nullptr) return false;
  std::lock_guard lock(capture_mutex());
  Capture* capture = stream.capture;
  if (capture == nullptr) return false;
  entry.origin = capture->origin == &stream;
  entry.stream = stream.index;
  if (entry.work >= 0) entry.captured = remember_captured();
  entry.node = add_node(*capture->graph, type, stream.last);
  stream.last.assign(1, entry.node);
  capture->graph->entries.push_back(std::move(entry));
  return true;
}

bool capture_effect(Stream& stream, std::function<void()> effect) {
  std::lock_guard lock(capture_mutex());
  Capture* capture = stream.capture;
  if (capture == nullptr) return false;
  Entry entry;
  entry.origin = capture->origin == &stream;
  entry.stream = stream.index;
  entry.effect = std::move(effect);
  capture->graph->entries.push_back(std::move(entry));
  return true;
}

int record_in_capture(Stream& stream, Event& event, bool external) {
  Entry entry;
  entry.kind = Kind::EventRecord;
  if (external) {
    entry.external = &event;
    return capture_entry(stream, std::move(entry), NodeType::RecordEvent) ? kSuccess : kCaptureInvalidated;
  }
  std::lock_guard lock(capture_mutex());
  Capture* capture = stream.capture;
  if (capture == nullptr) return kCaptureInvalidated;
  entry.origin = capture->origin == &stream;
  entry.stream = stream.index;
  entry.object = capture->graph->tokens++;
  event.capture_id = capture->id;
  event.token = entry.object;
  event.dependencies = stream.last;
  capture->graph->entries.push_back(std::move(entry));
  return kSuccess;
}

int wait_outside_capture(Stream& stream, Event& event) {
  Entry entry;
  entry.kind = Kind::StreamWait;
  entry.external = &event;
  return capture_entry(stream, std::move(entry), NodeType::WaitEvent) ? kSuccess : kCaptureInvalidated;
}

int join_capture(Stream& stream, Event& event) {
  auto found = std::find_if(active().begin(), active().end(), [&](Capture* c) { return c->id == event.capture_id; });
  Capture* current = stream.capture;
  if (found == active().end()) return current != nullptr ? kCaptureIsolation : kSuccess;
  Capture* capture = *found;
  if (current != nullptr && current != capture) {
    current->invalidated = capture->invalidated = true;
    return kCaptureMerge;
  }
  if (current == nullptr) {
    if (stream.index == 0) return capture->invalidated = true, kCaptureImplicit;
    capture->members.push_back(&stream);
    stream.capture.store(capture, std::memory_order_release);
  }
  for (Node* node : event.dependencies) {
    if (std::find(stream.last.begin(), stream.last.end(), node) == stream.last.end()) stream.last.push_back(node);
  }
  Entry entry;
  entry.kind = Kind::StreamWait;
  entry.origin = capture->origin == &stream;
  entry.stream = stream.index;
  entry.object = event.token;
  capture->graph->entries.push_back(std::move(entry));
  return kSuccess;
}

}  // namespace presim
