// Values in transit to device memory: data from other ranks arrive when they are read, not when they are requested.
//
// Code that reads or writes device memory (copies, fills, values computed on the CPU) calls these functions first.
// Reading waits for data in transit to that memory; writing discards them.
#pragma once
#include <atomic>
#include <cstddef>

#include "recorder.h"

namespace presim {

struct Arrivals {
  void (*before_read)(const void* address, size_t bytes);
  void (*before_write)(const void* address, size_t bytes);
};

// nullptr if nothing is in transit.
PRESIM_API std::atomic<const Arrivals*>& arrivals();

inline void before_read(const void* address, size_t bytes) {
  if (const Arrivals* coming = arrivals().load(std::memory_order_acquire)) coming->before_read(address, bytes);
}

inline void before_write(const void* address, size_t bytes) {
  if (const Arrivals* coming = arrivals().load(std::memory_order_acquire)) coming->before_write(address, bytes);
}

}  // namespace presim

extern "C" {
PRESIM_API void presim_before_read(const void* address, size_t bytes);
PRESIM_API void presim_before_write(const void* address, size_t bytes);
}
