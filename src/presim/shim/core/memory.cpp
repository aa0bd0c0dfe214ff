#include "memory.h"

#include <sys/mman.h>

#include <cstring>
#include <string>

#include "config.h"
#include "own_time.h"
#include "streams.h"
#include "values.h"

namespace presim {
namespace {

constexpr size_t kLarge = size_t(2) << 20;  // the driver's physical granularity

// Small allocations share physical chunks, large ones take whole ones.
size_t charged_bytes(size_t bytes) {
  size_t unit = bytes < kLarge / 2 ? 512 : kLarge;
  return (bytes + unit - 1) / unit * unit;
}

int free_at(void* address, bool of_space(const Range&), int error) {
  Range range;
  if (!find_range(address, &range) || range.base != reinterpret_cast<uintptr_t>(address) || !of_space(range)) {
    return error;
  }
  if (!remove_range(range.base, &range)) return error;
  forget(address, range.bytes);
  release_addresses(address, range.bytes);
  uncharge(range.device, range.charged);
  if (range.on_device()) append(Kind::SegmentFree, recorded_device(range.device), int64_t(range.base), int64_t(range.charged));
  return kSuccess;
}

void log_call(HostCall call, size_t bytes) { append(Kind::HostCall, 0, int64_t(call), int64_t(bytes)); }

// The driver waits for the device, which might still access the pages.
void unlock(const Range& range) {
  wait_for_device();
  log_call(HostCall::Unlock, range.bytes);
}

void drop_pages(uintptr_t first, uintptr_t last) {
  auto* begin = reinterpret_cast<void*>(first);
  // Locked pages cannot be dropped.
  if (madvise(begin, last - first, MADV_DONTNEED) != 0) std::memset(begin, 0, last - first);
}

}  // namespace

void* reserve_addresses(size_t bytes, size_t alignment) {
  size_t whole = bytes + (alignment > 4096 ? alignment : 0);
  void* mapped = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  auto begin = reinterpret_cast<uintptr_t>(mapped);
  uintptr_t aligned = (begin + alignment - 1) / alignment * alignment;
  if (aligned > begin) munmap(mapped, aligned - begin);
  size_t after = begin + whole - (aligned + bytes);
  if (after >= 4096) munmap(reinterpret_cast<void*>(aligned + bytes), after & ~size_t(4095));
  auto* address = reinterpret_cast<void*>(aligned);
  madvise(address, bytes, MADV_NOHUGEPAGE);  // one small write must not take 2 MiB of RAM
  madvise(address, bytes, MADV_DONTDUMP);
  return address;
}

int lacks_host_memory(size_t bytes) {
  note("host-limit bytes=" + std::to_string(bytes));
  return kOperatingSystem;
}

bool overwrite_pages(void* address, size_t bytes) {
  constexpr size_t kPage = 4096;
  auto* middle = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(address) + bytes / 2) & ~(kPage - 1));
  unsigned char state = 1;
  bool is_first = mincore(middle, kPage, &state) == 0 && (state & 1) == 0;
  make_zero(address, bytes);
  *middle = 0;
  return is_first;
}

void release_addresses(void* address, size_t bytes) { munmap(address, bytes); }

int allocate_device(void** address, size_t bytes, Space space) {
  if (address == nullptr) return kInvalidValue;
  *address = nullptr;
  if (bytes == 0) return kSuccess;
  size_t charged = charged_bytes(bytes);
  int device = current_device();
  if (!charge(device, charged)) return kOutOfMemory;
  // Page-aligned blocks do not share a page with a neighbour.
  size_t mapped = (bytes + 4095) & ~size_t(4095);
  void* made = reserve_addresses(mapped, bytes >= kLarge ? kLarge : 4096);
  if (made == nullptr) return uncharge(device, charged), lacks_host_memory(mapped);
  Range range;
  range.base = reinterpret_cast<uintptr_t>(made);
  range.bytes = mapped;
  range.asked = bytes;
  range.space = space;
  range.device = device;
  range.charged = charged;
  add_range(range);
  append(Kind::SegmentAlloc, recorded_device(device), int64_t(range.base), int64_t(charged));
  *address = made;
  return kSuccess;
}

int free_device(void* address) {
  if (address == nullptr) return kSuccess;
  Range range;
  auto is_ours = [](const Range& r) { return r.space == Space::Device || r.space == Space::Managed; };
  if (!find_range(address, &range) || !is_ours(range)) return kInvalidValue;
  wait_for_device();  // cudaFree returns after all work that might use the memory
  return free_at(address, is_ours, kInvalidValue);
}

int allocate_host(void** address, size_t bytes, unsigned flags) {
  if (address == nullptr) return kInvalidValue;
  *address = nullptr;
  if (bytes == 0) return kSuccess;
  size_t mapped = (bytes + 4095) & ~size_t(4095);
  void* made = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made == MAP_FAILED) return lacks_host_memory(mapped);
  log_call(HostCall::Lock, bytes);
  Range range;
  range.base = reinterpret_cast<uintptr_t>(made);
  range.bytes = mapped;
  range.space = Space::Pinned;
  range.device = current_device();
  range.flags = flags;
  add_range(range);
  *address = made;
  return kSuccess;
}

int free_host(void* address) {
  if (address == nullptr) return kSuccess;
  Range range;
  auto is_ours = [](const Range& r) { return r.space == Space::Pinned; };
  if (!find_range(address, &range) || !is_ours(range)) return kInvalidValue;
  unlock(range);
  return free_at(address, is_ours, kInvalidValue);
}

int register_host(void* address, size_t bytes, unsigned flags) {
  if (address == nullptr || bytes == 0) return kInvalidValue;
  Range range;
  auto base = reinterpret_cast<uintptr_t>(address);
  if (find_range(address, &range) || find_range(static_cast<char*>(address) + bytes - 1, &range)) {
    return kHostMemoryAlreadyRegistered;
  }
  range = Range{};
  range.base = base;
  range.bytes = bytes;
  range.space = Space::Registered;
  range.device = current_device();
  range.flags = flags;
  add_range(range);
  log_call(HostCall::Lock, bytes);
  return kSuccess;
}

int unregister_host(void* address) {
  Range range;
  bool known = find_range(address, &range) && range.space == Space::Registered;
  if (!known || range.base != reinterpret_cast<uintptr_t>(address)) return kHostMemoryNotRegistered;
  unlock(range);
  remove_range(range.base, &range);
  return kSuccess;
}

void make_zero(void* address, size_t bytes) {
  constexpr uintptr_t kPage = 4096;
  constexpr size_t kLong = 1 << 20;  // dropping more written pages may take longer than OwnTime assumes
  forget(address, bytes);
  constexpr size_t kWritten = 16384;  // below, writing is cheaper than a system call
  if (bytes <= kWritten) {
    std::memset(address, 0, bytes);
    return;
  }
  auto begin = reinterpret_cast<uintptr_t>(address);
  uintptr_t end = begin + bytes;
  uintptr_t first = (begin + kPage - 1) & ~(kPage - 1), last = end & ~(kPage - 1);
  std::memset(address, 0, first - begin);
  std::memset(reinterpret_cast<void*>(last), 0, end - last);
  if (last - first < kLong) return drop_pages(first, last);
  OwnWork working;
  drop_pages(first, last);
}

}  // namespace presim

void presim_zero_block(void* address, size_t bytes) {
  if (address != nullptr && bytes > 0) presim::make_zero(address, bytes);
}
