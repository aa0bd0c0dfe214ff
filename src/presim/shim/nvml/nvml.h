// The emulated part of NVML's binary interface. No build requirement has a header for it.
#pragma once
#include <cstddef>

#define PRESIM_EXPORT extern "C" __attribute__((visibility("default")))

namespace presim::nvml {

enum Return : int {
  kOk = 0, kUninitialized = 1, kInvalidArgument = 2, kUnsupported = 3, kUnfound = 6, kInsufficientSize = 7, kOther = 999,
};

struct Memory {
  unsigned long long total, free, used;
};

struct Memory2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};

struct PciInfo {
  char legacy_bus_id[16];
  unsigned domain, bus, device, device_id, subsystem_id;
  char bus_id[32];
};

struct Utilization {
  unsigned gpu, memory;
};

struct FabricInfo {
  unsigned version;
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
};

// A handle is a device's number plus one.
using Device = void*;

}  // namespace presim::nvml
