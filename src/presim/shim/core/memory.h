// Device and pinned host memory: addresses, capacity, and the allocation of an address.
//
// A device address is a host address: reserved memory that takes no RAM until it is written, so that small transfers
// can be done. Freed memory is unmapped and its addresses become unknown.
#pragma once
#include <cstddef>
#include <cstdint>

#include "device.h"
#include "recorder.h"

namespace presim {

enum class Space : uint8_t {
  Unknown,     // pageable host memory, or nothing
  Device,      // cudaMalloc
  Managed,     // cudaMallocManaged
  Pooled,      // cudaMallocAsync
  Mapped,      // VMM
  Pinned,      // cudaHostAlloc
  Registered,  // cudaHostRegister
};

struct Range {
  uintptr_t base = 0;
  size_t bytes = 0;        // whole pages
  size_t asked = 0;        // requested bytes; 0: all of them
  Space space = Space::Unknown;
  int device = 0;
  size_t charged = 0;      // bytes of the device's capacity
  unsigned flags = 0;      // of cudaHostAlloc, cudaHostRegister
  uint64_t id = 0;         // unique, never reused
  void* owner = nullptr;   // pool or physical allocation
  bool on_device() const { return space >= Space::Device && space <= Space::Mapped; }
  bool on_host() const { return space == Space::Pinned || space == Space::Registered; }
};

// Capacity of one device, which other processes may use, too (shared_devices.h).
bool charge(int device, size_t bytes);
void uncharge(int device, size_t bytes);
void device_memory_info(int device, size_t* free_bytes, size_t* total_bytes);  // creates a context, as CUDA does
void gpu_memory_info(int gpu, size_t* free_bytes, size_t* total_bytes);

int allocate_device(void** address, size_t bytes, Space space = Space::Device);
int free_device(void* address);
int allocate_host(void** address, size_t bytes, unsigned flags);
int free_host(void* address);
int register_host(void* address, size_t bytes, unsigned flags);
int unregister_host(void* address);

// Addresses without capacity or content.
void* reserve_addresses(size_t bytes, size_t alignment = 4096);
void release_addresses(void* address, size_t bytes);

// Notes that this machine, not the device, lacks memory, so that nobody takes it for the device's; the status to return.
int lacks_host_memory(size_t bytes);

void add_range(const Range& range);
bool remove_range(uintptr_t base, Range* removed);
// The range that holds `address`; false for pageable host memory.
bool find_range(const void* address, Range* found);
// Bytes from `address` to the end of its allocation, at most `wanted`. Adjacent VMM mappings count as one.
size_t room(const void* address, size_t wanted);
// Whether [address, address + bytes) lies in one allocation.
bool covered(const void* address, size_t bytes);

// Sets to zero. Whole pages are dropped if that is cheaper than writing.
void make_zero(void* address, size_t bytes);

// The same for pages of the host; returns whether this is their first use. A page in the middle tells, and is not dropped.
bool overwrite_pages(void* address, size_t bytes);

}  // namespace presim

// The caching allocator returns this block: values of an earlier owner are invalid.
extern "C" PRESIM_API void presim_zero_block(void* address, size_t bytes);
