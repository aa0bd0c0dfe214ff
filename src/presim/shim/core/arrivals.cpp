#include "arrivals.h"

namespace presim {

std::atomic<const Arrivals*>& arrivals() {
  static std::atomic<const Arrivals*> coming{nullptr};
  return coming;
}

}  // namespace presim

void presim_before_read(const void* address, size_t bytes) { presim::before_read(address, bytes); }
void presim_before_write(const void* address, size_t bytes) { presim::before_write(address, bytes); }
