// The emulated device, read once from the file $PRESIM_DEVICE: lines "key value", written by the launcher from the
// hardware catalogue. Without it a process has no device (cudaErrorNoDevice), like a machine without a GPU.
#pragma once
#include <cstdint>
#include <string>

#include "recorder.h"

namespace presim {

struct DeviceConfig {
  std::string name = "NVIDIA H100 80GB HBM3";
  int count = 0;                     // GPUs in this node
  int compute_major = 9, compute_minor = 0;
  int sm_count = 132;
  int64_t memory_bytes = 85520809984;        // total of cudaMemGetInfo
  int64_t context_bytes = 0;                 // used by the driver's context, not available to the program
  int64_t l2_bytes = 52428800;
  int clock_khz = 1980000, memory_clock_khz = 2619000, memory_bus_bits = 5120;
  int64_t shared_per_block_optin = 232448, shared_per_sm = 233472;
  int registers_per_sm = 65536, threads_per_sm = 2048;
  int driver_version = 13000;
  int64_t power_mw = 700000;
};
PRESIM_API const DeviceConfig& device_config();

}  // namespace presim
