// Checkable handles: objects in one reserved address range that is never released, so that checking a destroyed or
// foreign handle never accesses foreign memory.
#pragma once
#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <new>

namespace presim {

int lacks_host_memory(size_t bytes);  // memory.h

// T has a member `std::atomic<bool> live`, which is false in zeroed memory. A released slot is reused only after many
// others, so that a destroyed handle stays invalid for long.
template <class T, size_t capacity>
class Slab {
 public:
  Slab() {
    void* mapped = mmap(nullptr, capacity * sizeof(T), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    base_ = mapped == MAP_FAILED ? nullptr : static_cast<char*>(mapped);
  }

  // A live object, or nullptr if `capacity` objects are live.
  T* acquire() {
    std::lock_guard lock(mutex_);
    if (base_ == nullptr) return lacks_host_memory(capacity * sizeof(T)), nullptr;
    size_t slot = used_;
    bool full = used_ == capacity;
    if (free_.size() > kResting || (full && !free_.empty())) {
      slot = free_.front();
      free_.pop_front();
      reinterpret_cast<T*>(base_ + slot * sizeof(T))->~T();
    } else if (!full) {
      ++used_;
    } else {
      return nullptr;
    }
    T* object = new (base_ + slot * sizeof(T)) T;
    object->live.store(true, std::memory_order_release);
    return object;
  }

  // False if it was released already.
  bool release(T* object) {
    if (!object->live.exchange(false)) return false;
    std::lock_guard lock(mutex_);
    free_.push_back(slot_of(object));
    return true;
  }

  // The object behind a handle, or nullptr.
  T* find(const void* handle) const {
    auto offset = static_cast<const char*>(handle) - base_;
    if (offset < 0 || size_t(offset) >= capacity * sizeof(T) || size_t(offset) % sizeof(T) != 0) return nullptr;
    auto* object = reinterpret_cast<T*>(base_ + offset);
    return object->live.load(std::memory_order_acquire) ? object : nullptr;
  }

  size_t slot_of(const T* object) const {
    return size_t(reinterpret_cast<const char*>(object) - base_) / sizeof(T);
  }

  // Calls visit(T&) for every live object.
  template <class Visit>
  void for_each(Visit visit) {
    std::lock_guard lock(mutex_);
    for (size_t i = 0; i < used_; ++i) {
      auto* object = reinterpret_cast<T*>(base_ + i * sizeof(T));
      if (object->live.load(std::memory_order_acquire)) visit(*object);
    }
  }

 private:
  static constexpr size_t kResting = 65536;
  char* base_ = nullptr;
  std::mutex mutex_;
  size_t used_ = 0;
  std::deque<size_t> free_;  // oldest first
};

}  // namespace presim
