// Stream-ordered memory: cudaMallocAsync and its pools.
#pragma once
#include <cstddef>

#include "device.h"

namespace presim {

struct Pool;

// As cudaMemPoolAttr.
enum class PoolAttribute : int {
  FollowEvents = 1, Opportunistic = 2, InternalDependencies = 3, ReleaseThreshold = 4, ReservedCurrent = 5,
  ReservedHigh = 6, UsedCurrent = 7, UsedHigh = 8,
};

Pool* default_pool(int device);
Pool* current_pool(int device);
int set_current_pool(int device, void* pool);
int create_pool(Pool** out, int device);
int destroy_pool(void* pool);

int allocate_async(void** address, size_t bytes, void* pool, void* stream);  // nullptr: the pool of the stream's device
int free_async(void* address, void* stream);
int free_pooled(void* address);  // by cudaFree

int trim_pool(void* pool, size_t keep);
int get_pool_attribute(void* pool, int attribute, void* value);
int set_pool_attribute(void* pool, int attribute, const void* value);
// At a synchronisation, a pool releases memory above its threshold.
void trim_pools_at_sync(int device);

}  // namespace presim
