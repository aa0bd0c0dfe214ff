// Exchanges that have begun and not ended, and the memory that their results are on the way to.
#pragma once
#include <list>
#include <memory>
#include <mutex>

#include "libs/nccl_operation.h"

namespace presim::libs::nccl {

// Held by whoever looks at what is pending.
std::mutex& pending_lock();

// In the order of their calls, so that one pass from the front meets results before what depends on them.
std::list<std::unique_ptr<Operation>>& pending();

// Whether a result is on its way to some of these bytes.
bool awaited(const void* address, size_t bytes);

// These bytes were written since: results that are on their way to them stay away.
void make_void(const void* address, size_t bytes);

// What memory holds, with what is on its way there added when it comes.
void read_input(Operation& operation, const void* from, size_t bytes);

}  // namespace presim::libs::nccl
