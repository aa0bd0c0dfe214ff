#include "device.h"

#include <cstdlib>

#include "fork.h"
#include "recorder.h"
#include "visible_gpus.h"

namespace presim {
namespace {
thread_local int current = 0;
}

int device_count() { return visible_count(); }
bool valid_device(int device) { return device >= 0 && device < device_count(); }
int current_device() { return current; }

int set_current_device(int device) {
  if (device_count() == 0) return kNoDevice;
  if (!valid_device(device)) return kInvalidDevice;
  current = device;
  return kSuccess;
}

uint16_t recorded_device(int device) {
  static const bool has_all_gpus = std::getenv("PRESIM_ONE_PROCESS") != nullptr;
  return has_all_gpus ? uint16_t(device) : 0;
}

int device_ready() {
  if (device_count() == 0) return kNoDevice;
  if (forked_after_use()) return kNotInitialized;
  mark_used();
  return kSuccess;
}

}  // namespace presim
