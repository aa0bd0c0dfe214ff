// Allocation of each known address, and capacity of the devices.
#include <algorithm>
#include <map>
#include <mutex>

#include "config.h"
#include "fork.h"
#include "memory.h"
#include "shared_devices.h"
#include "visible_gpus.h"

namespace presim {
namespace {

struct Ranges {
  std::mutex mutex;
  std::map<uintptr_t, Range> by_base;  // disjoint
  uint64_t next_id = 1;
};

Ranges& all() {
  static auto* instance = [] {
    auto* made = new Ranges;
    hold_across_fork(made->mutex, ForkOrder::Memory);
    return made;
  }();
  return *instance;
}

// The last range that begins at or before `address`, if it reaches beyond it.
const Range* holding(const Ranges& ranges, uintptr_t address) {
  auto after = ranges.by_base.upper_bound(address);
  if (after == ranges.by_base.begin()) return nullptr;
  const Range& range = std::prev(after)->second;
  return address < range.base + range.bytes ? &range : nullptr;
}

}  // namespace

bool charge(int device, size_t bytes) { return take_memory(gpu_of(device), bytes); }

void uncharge(int device, size_t bytes) { return_memory(gpu_of(device), bytes); }

void gpu_memory_info(int gpu, size_t* free_bytes, size_t* total_bytes) {
  auto total = size_t(device_config().memory_bytes);
  if (free_bytes != nullptr) *free_bytes = total - held_memory(gpu);
  if (total_bytes != nullptr) *total_bytes = total;
}

void device_memory_info(int device, size_t* free_bytes, size_t* total_bytes) {
  use_gpu(gpu_of(device));
  gpu_memory_info(gpu_of(device), free_bytes, total_bytes);
}

void add_range(const Range& range) {
  Ranges& ranges = all();
  std::lock_guard lock(ranges.mutex);
  ranges.by_base[range.base] = range;
  ranges.by_base[range.base].id = ranges.next_id++;
}

bool remove_range(uintptr_t base, Range* removed) {
  Ranges& ranges = all();
  std::lock_guard lock(ranges.mutex);
  auto found = ranges.by_base.find(base);
  if (found == ranges.by_base.end()) return false;
  *removed = found->second;
  ranges.by_base.erase(found);
  return true;
}

bool find_range(const void* address, Range* found) {
  Ranges& ranges = all();
  std::lock_guard lock(ranges.mutex);
  const Range* range = holding(ranges, reinterpret_cast<uintptr_t>(address));
  if (range != nullptr) *found = *range;
  return range != nullptr;
}

size_t room(const void* address, size_t wanted) {
  Ranges& ranges = all();
  std::lock_guard lock(ranges.mutex);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  uintptr_t at = begin;
  const Range* range = holding(ranges, at);
  while (range != nullptr) {
    at = range->base + range->bytes;
    if (at - begin >= wanted || range->space != Space::Mapped) break;
    range = holding(ranges, at);
    if (range != nullptr && range->space != Space::Mapped) break;
  }
  return std::min(at - begin, wanted);
}

bool covered(const void* address, size_t bytes) { return room(address, bytes) == bytes; }

}  // namespace presim
