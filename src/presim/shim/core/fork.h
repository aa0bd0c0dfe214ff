// Locks that are free, with consistent data, in a forked child.
#pragma once
#include <mutex>

namespace presim {

// Acquired in this order before a fork, which must be their nesting order.
enum class ForkOrder : int { Texts, Calls, Graphs, Memory, Values, Log };

void hold_across_fork(std::mutex& mutex, ForkOrder order);

// True in a child forked after the first CUDA call of its parent, where CUDA does not work.
bool forked_after_use();
void mark_used();
bool is_used();

}  // namespace presim
