// Locks that a forked child finds unlocked and the data behind them whole.
#pragma once
#include <mutex>

namespace presim {

// Taken in this order before a fork, which must be the order in which they nest.
enum class ForkOrder : int { Texts, Calls, Graphs, Memory, Values, Log };

void hold_across_fork(std::mutex& mutex, ForkOrder order);

// True in a child forked after the first CUDA call of its parent, where CUDA works no more.
bool forked_after_use();
void mark_used();
bool is_used();

}  // namespace presim
