#include "attributes.h"

#include <cstdio>
#include <cstring>
#include <strings.h>

#include "config.h"
#include "visible_gpus.h"

namespace presim {
namespace {

struct Attribute {
  int number;
  int value;
};

// Equal on all devices since compute capability 7.0, for the attributes that programs read.
constexpr Attribute kCommon[] = {
    {1, 1024},         // threads per block
    {2, 1024},         // block x, y, z
    {3, 1024},
    {4, 64},
    {5, 2147483647},   // grid x, y, z
    {6, 65535},
    {7, 65535},
    {8, 49152},        // shared memory per block without opting in
    {9, 65536},        // constant memory
    {10, 32},          // warp
    {11, 2147483647},  // pitch
    {12, 65536},       // registers per block
    {14, 512},         // texture alignment
    {15, 1},           // copies beside kernels
    {19, 1},           // maps host memory
    {21, 131072},      // textures: 1D; 2D; 3D; layered
    {22, 131072},
    {23, 65536},
    {24, 16384},
    {25, 16384},
    {26, 16384},
    {27, 32768},
    {28, 32768},
    {29, 2048},
    {30, 512},         // surface alignment
    {31, 1},           // concurrent kernels
    {32, 1},           // ECC
    {40, 3},           // copy engines
    {41, 1},           // unified addressing
    {51, 32},          // texture pitch alignment
    {69, 268435456},   // 1D linear texture
    {78, 1},           // stream priorities
    {79, 1},           // L1 caches
    {80, 1},
    {83, 1},           // managed memory
    {87, 2},           // single to double precision
    {89, 1},           // concurrent managed access
    {90, 1},           // compute preemption
    {91, 1},           // device uses registered host addresses
    {92, 1},           // memory operations in streams
    {93, 1},
    {94, 1},
    {95, 1},           // cooperative launch
    {98, 1},           // flush remote writes
    {99, 1},           // host register
    {102, 1},          // virtual memory management
    {103, 1},          // its POSIX file handles
    {111, 1024},       // shared memory reserved per block
    {112, 1},          // sparse arrays
    {113, 1},          // read-only host register
    {114, 1},          // timeline semaphores
    {115, 1},          // memory pools
    {116, 1},          // GPUDirect RDMA
    {117, 1},
    {118, 100},
    {119, 1},          // pool handles: POSIX file descriptors
    {121, 1},          // deferred mapping of arrays
    {124, 1},          // DMA-BUF
    {125, 1},          // interprocess events
    {126, 4},          // memory synchronisation domains
    {131, -1},         // NUMA node
};

// Attributes that depend on the device; -1 for others, see kCommon.
int64_t of_config(const DeviceConfig& config, int attribute, int device) {
  bool hopper = config.compute_major >= 9;
  switch (attribute) {
    case 13: return config.clock_khz;
    case 16: return config.sm_count;
    case 33: return pci_bus(gpu_of(device));  // device and domain are 0
    case 36: return config.memory_clock_khz;
    case 37: return config.memory_bus_bits;
    case 38: return config.l2_bytes;
    case 39: return config.threads_per_sm;
    case 75: return config.compute_major;
    case 76: return config.compute_minor;
    case 81: return config.shared_per_sm;
    case 82: return config.registers_per_sm;
    case 97: return config.shared_per_block_optin;
    case 106: return config.threads_per_sm >= 2048 ? 32 : config.compute_major >= 12 || config.compute_minor == 9 ? 24 : 16;
    case 108: return config.l2_bytes * 5 / 8;  // persisting L2
    case 109: return 134213632;                // access policy window
    case 120: return hopper;                   // cluster launch
    case 123: return hopper;                   // fabric handles and tensor maps
    case 127: return hopper;                   // tensor map access
    case 132: return 0;                        // multicast: needs a switch that is not emulated
    default: return -1;
  }
}

}  // namespace

int device_attribute(int* value, int attribute, int device) {
  if (value == nullptr || attribute <= 0 || attribute > 200) return kInvalidValue;
  if (!valid_device(device)) return kInvalidDevice;
  *value = 0;
  for (const Attribute& common : kCommon) {
    if (common.number == attribute) *value = common.value;
  }
  int64_t own = of_config(device_config(), attribute, device);
  if (own >= 0) *value = int(own);
  return kSuccess;
}

int pci_bus(int gpu) { return (0x1b + gpu * 0x10) & 0xff; }

std::string pci_bus_id(int gpu) {
  char text[16];
  std::snprintf(text, sizeof text, "0000:%02X:00.0", unsigned(pci_bus(gpu)));
  return text;
}

bool gpu_by_pci_bus_id(int* gpu, const char* id) {
  // Domains are written with four or with eight digits.
  const char* tail = std::strchr(id, ':');
  for (int i = 0; tail != nullptr && i < gpu_count(); ++i) {
    std::string own = pci_bus_id(i);
    if (strcasecmp(tail, own.c_str() + 4) == 0) return *gpu = i, true;
  }
  return false;
}

void device_uuid(unsigned char* out, int gpu) {
  static constexpr char kPrefix[] = "presim-emulated";
  static_assert(sizeof kPrefix == 16);
  std::memcpy(out, kPrefix, 16);
  out[15] = static_cast<unsigned char>(gpu);
}

std::string device_uuid_text(int gpu) {
  unsigned char b[16];
  device_uuid(b, gpu);
  char text[48];
  std::snprintf(text, sizeof text, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1],
                b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
  return text;
}

}  // namespace presim
