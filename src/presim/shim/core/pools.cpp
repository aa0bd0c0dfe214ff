// A pool takes capacity in chunks as its use grows, and keeps it until it is trimmed. Its blocks can be at any
// address: the driver maps free chunks on demand, so a pool does not fragment.
#include "pools.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

#include "arrivals.h"
#include "capture.h"
#include "memory.h"
#include "slab.h"

namespace presim {

struct Pool {
  std::atomic<bool> live{false};
  int device = 0;
  size_t used = 0, used_high = 0;
  size_t reserved = 0, reserved_high = 0;  // reserved >= used; charged to the device's capacity
  uint64_t threshold = 0;
  int reuse[3] = {1, 1, 1};
};

namespace {

constexpr size_t kChunk = size_t(32) << 20, kSmallChunk = size_t(2) << 20;
using Pools = Slab<Pool, 4096>;

Pools& all() {
  static auto* instance = new Pools;
  return *instance;
}
std::mutex& mutex() {
  static auto* instance = new std::mutex;
  return *instance;
}
Pool* defaults[kMaxDevices] = {};
Pool* currents[kMaxDevices] = {};
std::atomic<bool> any_used{false};

size_t whole(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

void log_growth(const Pool& pool, Kind kind, size_t bytes) {
  append(kind, recorded_device(pool.device), reinterpret_cast<int64_t>(&pool), int64_t(bytes));
}

// locked
bool grow(Pool& pool, size_t needed) {
  if (needed <= pool.reserved) return true;
  for (size_t unit : {kChunk, kSmallChunk}) {
    size_t more = whole(needed - pool.reserved, unit);
    if (!charge(pool.device, more)) continue;
    pool.reserved += more;
    pool.reserved_high = std::max(pool.reserved_high, pool.reserved);
    log_growth(pool, Kind::SegmentAlloc, more);
    return true;
  }
  return false;
}

// locked
void shrink(Pool& pool, size_t keep) {
  if (keep >= pool.reserved) return;
  size_t target = whole(std::max(keep, pool.used), kSmallChunk);
  if (target >= pool.reserved) return;
  size_t less = pool.reserved - target;
  pool.reserved = target;
  uncharge(pool.device, less);
  log_growth(pool, Kind::SegmentFree, less);
}

// locked
Pool* default_of(int device) {
  if (defaults[device] == nullptr) {
    defaults[device] = all().acquire();
    defaults[device]->device = device;
    currents[device] = defaults[device];
  }
  return defaults[device];
}

}  // namespace

Pool* default_pool(int device) {
  std::lock_guard lock(mutex());
  return default_of(device);
}

Pool* current_pool(int device) {
  std::lock_guard lock(mutex());
  default_of(device);
  return currents[device];
}

int set_current_pool(int device, void* handle) {
  Pool* pool = all().find(handle);
  if (pool == nullptr || !valid_device(device)) return kInvalidValue;
  std::lock_guard lock(mutex());
  default_of(device);
  currents[device] = pool;
  return kSuccess;
}

int create_pool(Pool** out, int device) {
  if (out == nullptr || !valid_device(device)) return kInvalidValue;
  *out = all().acquire();
  if (*out == nullptr) return kOutOfMemory;
  (*out)->device = device;
  return kSuccess;
}

int destroy_pool(void* handle) {
  Pool* pool = all().find(handle);
  if (pool == nullptr || pool == defaults[pool->device]) return kInvalidValue;
  std::lock_guard lock(mutex());
  shrink(*pool, 0);
  if (currents[pool->device] == pool) currents[pool->device] = defaults[pool->device];
  return all().release(pool) ? kSuccess : kInvalidValue;
}

int allocate_async(void** address, size_t bytes, void* pool_handle, void* stream_handle) {
  if (address == nullptr) return kInvalidValue;
  if (int status = device_ready()) return status;
  Stream* stream = find_stream(stream_handle);
  if (stream == nullptr) return kInvalidHandle;
  *address = nullptr;
  if (bytes == 0) return kSuccess;
  any_used = true;
  Pool* pool = pool_handle != nullptr ? all().find(pool_handle) : current_pool(stream->device);
  if (pool == nullptr) return kInvalidValue;
  size_t block = whole(bytes, 512);
  std::lock_guard lock(mutex());
  if (!grow(*pool, pool->used + block)) return kOutOfMemory;
  Range range;
  range.bytes = whole(bytes, 4096);
  range.asked = bytes;
  range.base = reinterpret_cast<uintptr_t>(reserve_addresses(range.bytes));
  if (range.base == 0) return lacks_host_memory(range.bytes);
  range.space = Space::Pooled;
  range.device = pool->device;
  range.charged = block;
  range.owner = pool;
  add_range(range);
  pool->used += block;
  pool->used_high = std::max(pool->used_high, pool->used);
  *address = reinterpret_cast<void*>(range.base);
  return kSuccess;
}

int free_pooled(void* address) {
  Range range;
  bool known = find_range(address, &range) && range.space == Space::Pooled;
  if (!known || range.base != reinterpret_cast<uintptr_t>(address)) return kInvalidValue;
  before_write(address, range.bytes);
  if (!remove_range(range.base, &range)) return kInvalidValue;
  release_addresses(address, range.bytes);
  std::lock_guard lock(mutex());
  static_cast<Pool*>(range.owner)->used -= range.charged;
  return kSuccess;
}

int free_async(void* address, void* stream) {
  if (int status = device_ready()) return status;
  if (find_stream(stream) == nullptr) return kInvalidHandle;
  if (address == nullptr) return kSuccess;
  int status = free_pooled(address);
  return status == kSuccess ? status : free_device(address);
}

int trim_pool(void* handle, size_t keep) {
  Pool* pool = all().find(handle);
  if (pool == nullptr) return kInvalidValue;
  std::lock_guard lock(mutex());
  shrink(*pool, keep);
  return kSuccess;
}

void trim_pools_at_sync(int device) {
  if (!any_used.load(std::memory_order_relaxed)) return;
  std::lock_guard lock(mutex());
  all().for_each([device](Pool& pool) {
    if (pool.device == device) shrink(pool, size_t(pool.threshold));
  });
}

int get_pool_attribute(void* handle, int attribute, void* value) {
  Pool* pool = all().find(handle);
  if (pool == nullptr || value == nullptr || attribute < 1 || attribute > 8) return kInvalidValue;
  std::lock_guard lock(mutex());
  if (attribute <= 3) return *static_cast<int*>(value) = pool->reuse[attribute - 1], kSuccess;
  const uint64_t values[] = {pool->threshold, pool->reserved, pool->reserved_high, pool->used, pool->used_high};
  *static_cast<uint64_t*>(value) = values[attribute - 4];
  return kSuccess;
}

int set_pool_attribute(void* handle, int attribute, const void* value) {
  Pool* pool = all().find(handle);
  if (pool == nullptr || value == nullptr) return kInvalidValue;
  std::lock_guard lock(mutex());
  if (attribute >= 1 && attribute <= 3) return pool->reuse[attribute - 1] = *static_cast<const int*>(value), kSuccess;
  uint64_t number = *static_cast<const uint64_t*>(value);
  switch (PoolAttribute(attribute)) {
    case PoolAttribute::ReleaseThreshold: pool->threshold = number; return kSuccess;
    case PoolAttribute::ReservedHigh: pool->reserved_high = pool->reserved; break;
    case PoolAttribute::UsedHigh: pool->used_high = pool->used; break;
    default: return kInvalidValue;
  }
  return number == 0 ? kSuccess : kInvalidValue;  // high-water marks can only be reset
}

}  // namespace presim
