#include "fork.h"

#include <pthread.h>

#include <atomic>

namespace presim {
namespace {

constexpr int kOrders = 5;
std::atomic<std::mutex*> held[kOrders];
std::atomic<bool> used{false};
std::atomic<bool> forked{false};

void lock_all() {
  for (auto& mutex : held) {
    if (mutex.load() != nullptr) mutex.load()->lock();
  }
}

void unlock_all() {
  for (int i = kOrders - 1; i >= 0; --i) {
    if (held[i].load() != nullptr) held[i].load()->unlock();
  }
}

[[gnu::constructor]] void install() {
  pthread_atfork(lock_all, unlock_all, [] {
    if (used) forked = true;
    unlock_all();
  });
}

}  // namespace

void hold_across_fork(std::mutex& mutex, ForkOrder order) { held[int(order)] = &mutex; }
bool forked_after_use() { return forked.load(std::memory_order_relaxed); }
bool is_used() { return used; }
void mark_used() {
  if (!used.load(std::memory_order_relaxed)) used = true;
}

}  // namespace presim
