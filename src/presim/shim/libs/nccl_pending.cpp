#include "libs/nccl_pending.h"

#include <algorithm>

namespace presim::libs::nccl {
namespace {

// The overlap of [to, to + bytes) with an output.
bool overlap(const Output& output, const char* to, size_t bytes, const char** begin, const char** end) {
  *begin = std::max<const char*>(output.to, to);
  *end = std::min<const char*>(output.to + output.bytes, to + bytes);
  return *begin < *end;
}

// A message keeps its known parts: the sender may have filled only a part of a buffer (a shape of some dimensions).
uint8_t origin_read(const Operation& operation, const void* from, size_t bytes) {
  uint8_t whole = origin_of(from, bytes);
  return whole == kNobody && operation.call.shape == Shape::Send ? origin_within(from, bytes) : whole;
}

}  // namespace

std::mutex& pending_lock() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

std::list<std::unique_ptr<Operation>>& pending() {
  static auto* operations = new std::list<std::unique_ptr<Operation>>;
  return *operations;
}

bool awaited(const void* address, size_t bytes) {
  const char *begin, *end;
  for (const auto& operation : pending())
    for (const Output& output : operation->outputs)
      if (overlap(output, static_cast<const char*>(address), bytes, &begin, &end)) return true;
  return false;
}

void make_void(const void* address, size_t bytes) {
  for (auto& operation : pending()) {
    std::vector<Output> left;
    for (const Output& output : operation->outputs) {
      const char *begin, *end;
      if (!overlap(output, static_cast<const char*>(address), bytes, &begin, &end)) {
        left.push_back(output);
        continue;
      }
      size_t before = size_t(begin - output.to), after = size_t(output.to + output.bytes - end);
      if (before > 0) left.push_back({output.to, before, output.from});
      if (after > 0) left.push_back({const_cast<char*>(end), after, output.from + output.bytes - after});
    }
    operation->outputs = std::move(left);
  }
}

void read_input(Operation& operation, const void* from, size_t bytes) {
  auto* base = static_cast<const char*>(from);
  operation.input.assign(base, bytes);
  std::vector<std::pair<const char*, const char*>> coming;
  for (auto& earlier : pending()) {
    for (const Output& output : earlier->outputs) {
      const char *begin, *end;
      if (!overlap(output, base, bytes, &begin, &end)) continue;
      earlier->dependents.push_back({&operation, size_t(begin - base), size_t(end - begin),
                                     output.from + size_t(begin - output.to)});
      ++operation.missing;
      coming.emplace_back(begin, end);
    }
  }
  std::sort(coming.begin(), coming.end());
  coming.emplace_back(base + bytes, base + bytes);
  for (auto [begin, end] : coming) {
    if (begin > base) operation.origin = joined(operation.origin, origin_read(operation, base, size_t(begin - base)));
    base = std::max(base, end);
  }
}

}  // namespace presim::libs::nccl
