// Two mappings of one physical allocation do not share content: only multicast and interprocess memory has two.
#include "virtual_memory.h"

#include <sys/mman.h>

#include <map>
#include <mutex>

#include "arrivals.h"
#include "memory.h"
#include "slab.h"

namespace presim {

struct Physical {
  std::atomic<bool> live{false};
  size_t bytes = 0;
  int device = 0;
  bool on_host = false;
  int references = 1;  // handles and mappings; memory is released at zero
  int handles = 1;
};

namespace {

using Physicals = Slab<Physical, size_t(1) << 22>;

Physicals& all() {
  static auto* instance = new Physicals;
  return *instance;
}
std::mutex& mutex() {
  static auto* instance = new std::mutex;
  return *instance;
}
std::map<uintptr_t, size_t>& reservations() {
  static auto* instance = new std::map<uintptr_t, size_t>;
  return *instance;
}

// locked
void drop(Physical* physical) {
  if (--physical->references > 0) return;
  if (!physical->on_host) uncharge(physical->device, physical->bytes);
  all().release(physical);
}

bool reserved(uintptr_t address, size_t bytes) {
  auto after = reservations().upper_bound(address);
  if (after == reservations().begin()) return false;
  auto [base, size] = *std::prev(after);
  return address + bytes <= base + size;
}

}  // namespace

int reserve_virtual(void** address, size_t bytes, size_t alignment) {
  if (address == nullptr || bytes == 0 || bytes % kGranularity != 0) return kInvalidValue;
  if (int status = device_ready()) return status;
  *address = reserve_addresses(bytes, alignment > kGranularity ? alignment : kGranularity);
  if (*address == nullptr) return lacks_host_memory(bytes);
  std::lock_guard lock(mutex());
  reservations()[reinterpret_cast<uintptr_t>(*address)] = bytes;
  return kSuccess;
}

int free_virtual(void* address, size_t bytes) {
  std::lock_guard lock(mutex());
  auto found = reservations().find(reinterpret_cast<uintptr_t>(address));
  if (found == reservations().end() || found->second != bytes) return kInvalidValue;
  Range range;
  if (find_range(address, &range)) return kInvalidValue;  // still mapped
  release_addresses(address, bytes);
  reservations().erase(found);
  return kSuccess;
}

int create_physical(Physical** out, size_t bytes, int device, bool on_host) {
  if (out == nullptr || bytes == 0 || bytes % kGranularity != 0) return kInvalidValue;
  if (int status = device_ready()) return status;
  if (!on_host && !valid_device(device)) return kInvalidDevice;
  if (!on_host && !charge(device, bytes)) return kOutOfMemory;
  *out = all().acquire();
  if (*out == nullptr) return kOutOfMemory;
  (*out)->bytes = bytes;
  (*out)->device = on_host ? 0 : device;
  (*out)->on_host = on_host;
  return kSuccess;
}

int release_physical(void* handle) {
  std::lock_guard lock(mutex());
  Physical* physical = all().find(handle);
  if (physical == nullptr || physical->handles == 0) return kInvalidValue;
  --physical->handles;
  drop(physical);
  return kSuccess;
}

int retain_physical_at(Physical** out, void* address) {
  Range range;
  std::lock_guard lock(mutex());
  if (out == nullptr || !find_range(address, &range) || range.space != Space::Mapped) return kInvalidValue;
  *out = static_cast<Physical*>(range.owner);
  ++(*out)->references;
  ++(*out)->handles;
  return kSuccess;
}

int map_virtual(void* address, size_t bytes, void* handle) {
  std::lock_guard lock(mutex());
  Physical* physical = all().find(handle);
  auto base = reinterpret_cast<uintptr_t>(address);
  if (physical == nullptr || bytes == 0 || bytes > physical->bytes) return kInvalidValue;
  Range range;
  if (base % kGranularity != 0 || !reserved(base, bytes) || find_range(address, &range)) return kInvalidValue;
  range = Range{};
  range.base = base;
  range.bytes = bytes;
  range.space = Space::Mapped;
  range.device = physical->device;
  range.charged = physical->on_host ? 0 : bytes;
  range.owner = physical;
  add_range(range);
  ++physical->references;
  append(Kind::SegmentAlloc, recorded_device(range.device), int64_t(base), int64_t(range.charged));
  return kSuccess;
}

int unmap_virtual(void* address, size_t bytes) {
  std::lock_guard lock(mutex());
  auto base = reinterpret_cast<uintptr_t>(address);
  uintptr_t end = base + bytes;
  if (!covered(address, bytes)) return kInvalidValue;
  before_write(address, bytes);
  while (base < end) {
    Range range;
    bool whole = find_range(reinterpret_cast<void*>(base), &range) && range.base == base && range.space == Space::Mapped;
    if (!whole || base + range.bytes > end || !remove_range(base, &range)) return kInvalidValue;
    madvise(reinterpret_cast<void*>(base), range.bytes, MADV_DONTNEED);
    append(Kind::SegmentFree, recorded_device(range.device), int64_t(base), int64_t(range.charged));
    drop(static_cast<Physical*>(range.owner));
    base += range.bytes;
  }
  return kSuccess;
}

int check_mapped(void* address, size_t bytes) { return covered(address, bytes) ? kSuccess : kInvalidValue; }

size_t physical_bytes(void* handle) {
  std::lock_guard lock(mutex());
  Physical* physical = all().find(handle);
  return physical != nullptr ? physical->bytes : 0;
}

int physical_device(void* handle, int* device, bool* on_host) {
  std::lock_guard lock(mutex());
  Physical* physical = all().find(handle);
  if (physical == nullptr) return kInvalidValue;
  *device = physical->device;
  *on_host = physical->on_host;
  return kSuccess;
}

}  // namespace presim
