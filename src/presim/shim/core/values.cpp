#include "values.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>

#include "arrivals.h"
#include "capture.h"
#include "fork.h"
#include "memory.h"

namespace presim {
namespace {

struct Span {
  uintptr_t end;
  uint8_t origin;
};

struct Values {
  std::mutex mutex;
  std::map<uintptr_t, Span> spans;  // by first address; disjoint, and neighbours differ
  std::atomic<size_t> count{0};     // spans.size(), readable without the lock
};

Values& all() {
  static auto* instance = [] {
    auto* made = new Values;
    hold_across_fork(made->mutex, ForkOrder::Values);
    return made;
  }();
  return *instance;
}

using Spans = std::map<uintptr_t, Span>;

// The first span that ends after `address`.
Spans::iterator first_after(Spans& spans, uintptr_t address) {
  auto next = spans.upper_bound(address);
  if (next == spans.begin()) return next;
  auto before = std::prev(next);
  return before->second.end > address ? before : next;
}

void cut(Spans& spans, uintptr_t begin, uintptr_t end) {
  auto at = first_after(spans, begin);
  while (at != spans.end() && at->first < end) {
    uintptr_t first = at->first;
    Span span = at->second;
    at = spans.erase(at);
    if (first < begin) spans.emplace(first, Span{begin, span.origin});
    if (span.end > end) at = spans.emplace(end, span).first;
  }
}

void join(Spans& spans, uintptr_t begin, uintptr_t end, uint8_t origin) {
  auto next = spans.lower_bound(begin);
  if (next != spans.end() && next->first == end && next->second.origin == origin) {
    end = next->second.end;
    next = spans.erase(next);
  }
  if (next != spans.begin()) {
    auto before = std::prev(next);
    if (before->second.end == begin && before->second.origin == origin) {
      before->second.end = end;
      return;
    }
  }
  spans.emplace_hint(next, begin, Span{end, origin});
}

uint8_t among_spans(uintptr_t begin, size_t bytes) {
  Values& values = all();
  if (values.count.load(std::memory_order_relaxed) == 0) return kNobody;
  std::lock_guard lock(values.mutex);
  uintptr_t end = begin + bytes;
  uint8_t greatest = kNobody;
  for (auto at = first_after(values.spans, begin); at != values.spans.end() && at->first <= begin; ++at) {
    greatest = std::max(greatest, at->second.origin);
    if (at->second.end >= end) return greatest;
    begin = at->second.end;
  }
  return kNobody;
}

}  // namespace

void know(const void* address, size_t bytes, uint8_t origin) {
  if (origin == kNobody) return forget(address, bytes);
  if (bytes == 0) return;
  before_write(address, bytes);
  Values& values = all();
  std::lock_guard lock(values.mutex);
  auto begin = reinterpret_cast<uintptr_t>(address);
  cut(values.spans, begin, begin + bytes);
  join(values.spans, begin, begin + bytes, origin);
  values.count.store(values.spans.size(), std::memory_order_relaxed);
}

void forget(const void* address, size_t bytes) {
  before_write(address, bytes);
  Values& values = all();
  if (bytes == 0 || values.count.load(std::memory_order_relaxed) == 0) return;
  std::lock_guard lock(values.mutex);
  auto begin = reinterpret_cast<uintptr_t>(address);
  cut(values.spans, begin, begin + bytes);
  values.count.store(values.spans.size(), std::memory_order_relaxed);
}

uint8_t origin_of(const void* address, size_t bytes) {
  if (bytes == 0) return kComputed;
  before_read(address, bytes);
  uint8_t found = among_spans(reinterpret_cast<uintptr_t>(address), bytes);
  if (found != kNobody) return found;
  Range range;  // the device may look at host memory, too, which always holds what it says
  return find_range(address, &range) && range.on_host() ? kComputed : kNobody;
}

bool known(const void* address, size_t bytes) {
  return among_spans(reinterpret_cast<uintptr_t>(address), bytes) != kNobody;
}

uint8_t origin_within(const void* address, size_t bytes) {
  before_read(address, bytes);
  Values& values = all();
  std::lock_guard lock(values.mutex);
  auto begin = reinterpret_cast<uintptr_t>(address);
  uint8_t greatest = kNobody;
  for (auto at = first_after(values.spans, begin); at != values.spans.end() && at->first < begin + bytes; ++at)
    greatest = std::max(greatest, at->second.origin);
  return greatest;
}

void know_as(const void* to, size_t to_bytes, const void* from, size_t from_bytes) {
  know(to, to_bytes, origin_of(from, from_bytes));
}

int64_t& expected_count() {
  static thread_local int64_t count = -1;
  return count;
}

bool mapped(const void* address, size_t bytes) { return covered(address, bytes); }

bool captures(void* handle) {
  if (!any_capture()) return false;
  Stream* stream = find_stream(handle);
  return stream != nullptr && stream->capture.load(std::memory_order_acquire) != nullptr;
}

bool at_replay(void* handle, void (*run)(void*), void* data, void (*drop)(void*)) {
  std::shared_ptr<void> owned(data, drop);
  Stream* stream = find_stream(handle);
  return stream != nullptr && capture_effect(*stream, [run, owned] { run(owned.get()); });
}

}  // namespace presim
