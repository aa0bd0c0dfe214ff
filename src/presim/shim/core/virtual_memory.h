// Virtual memory management: address reservations, physical allocations, and mappings between them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "device.h"

namespace presim {

constexpr size_t kGranularity = size_t(2) << 20;

struct Physical;

int reserve_virtual(void** address, size_t bytes, size_t alignment);
int free_virtual(void* address, size_t bytes);
int create_physical(Physical** out, size_t bytes, int device, bool on_host);
int release_physical(void* handle);
int retain_physical_at(Physical** out, void* address);
int map_virtual(void* address, size_t bytes, void* handle);
int unmap_virtual(void* address, size_t bytes);
int check_mapped(void* address, size_t bytes);
size_t physical_bytes(void* handle);  // 0: no such handle
int physical_device(void* handle, int* device, bool* on_host);

}  // namespace presim
