// The current device of a thread, and whether there is one.
#pragma once
#include "status.h"

namespace presim {

constexpr int kMaxDevices = 16;

// The calling thread's current device.
int current_device();
int set_current_device(int device);

// First check of every call that needs a device: kNoDevice without a description, kNotInitialized in a forked child.
int device_ready();
bool valid_device(int device);
int device_count();

}  // namespace presim
