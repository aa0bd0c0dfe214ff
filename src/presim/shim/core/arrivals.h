// Values on their way into device memory: what other ranks send arrives when it is read, not when it is asked for.
//
// Whoever reads or writes the content of device memory for real (copies, fills, values computed beside the device) says so
// first. Reading waits for what is to arrive in that memory; writing makes it void there.
#pragma once
#include <atomic>
#include <cstddef>

#include "recorder.h"

namespace presim {

struct Arrivals {
  void (*before_read)(const void* address, size_t bytes);
  void (*before_write)(const void* address, size_t bytes);
};

// nullptr while nothing is on its way.
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
