// Exchanges in progress, and the memory of their pending results.
#pragma once
#include <list>
#include <memory>
#include <mutex>

#include "libs/nccl_operation.h"

namespace presim::libs::nccl {

// Held while pending exchanges are accessed.
std::mutex& pending_lock();

// In call order, so that one pass from the front handles results before exchanges that depend on them.
std::list<std::unique_ptr<Operation>>& pending();

// Whether a result is pending for some of these bytes.
bool awaited(const void* address, size_t bytes);

// These bytes were written: results pending for them are discarded.
void make_void(const void* address, size_t bytes);

// Content of memory; pending results are added when they arrive.
void read_input(Operation& operation, const void* from, size_t bytes);

}  // namespace presim::libs::nccl
