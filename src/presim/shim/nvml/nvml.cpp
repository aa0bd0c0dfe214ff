#include "nvml.h"

#include <cstdio>
#include <cstring>
#include <string>

#include "core/attributes.h"
#include "core/config.h"
#include "core/memory.h"
#include "core/visible_gpus.h"

using namespace presim;
using namespace presim::nvml;

namespace {

constexpr char kDriverVersion[] = "580.65.06", kNvmlVersion[] = "13.580.65.06";

int number(Device device) { return int(reinterpret_cast<intptr_t>(device)) - 1; }
bool valid_gpu(int gpu) { return gpu >= 0 && gpu < gpu_count(); }
bool valid(Device device) { return valid_gpu(number(device)); }
Device handle(int gpu) { return reinterpret_cast<Device>(intptr_t(gpu) + 1); }

int give(char* out, unsigned bytes, const std::string& text) {
  if (out == nullptr) return kInvalidArgument;
  if (bytes <= text.size()) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kOk;
}

template <class T>
int give(Device device, T* out, T value) {
  if (out == nullptr || !valid(device)) return kInvalidArgument;
  *out = value;
  return kOk;
}

int pci_info(Device device, PciInfo* out) {
  if (out == nullptr || !valid(device)) return kInvalidArgument;
  std::memset(out, 0, sizeof *out);
  std::string id = pci_bus_id(number(device));
  std::snprintf(out->legacy_bus_id, sizeof out->legacy_bus_id, "%s", id.c_str());
  std::snprintf(out->bus_id, sizeof out->bus_id, "0000%s", id.c_str());
  out->bus = unsigned(pci_bus(number(device)));
  return kOk;
}

void memory_of(Device device, unsigned long long* total, unsigned long long* free, unsigned long long* used) {
  size_t free_bytes = 0, total_bytes = 0;
  gpu_memory_info(number(device), &free_bytes, &total_bytes);
  *total = total_bytes;
  *free = free_bytes;
  *used = total_bytes - free_bytes;
}

}  // namespace

PRESIM_EXPORT int nvmlInit_v2() { return device_config().count > 0 ? kOk : kUnfound; }
PRESIM_EXPORT int nvmlInit() { return nvmlInit_v2(); }
PRESIM_EXPORT int nvmlInitWithFlags(unsigned) { return nvmlInit_v2(); }
PRESIM_EXPORT int nvmlShutdown() { return kOk; }
PRESIM_EXPORT const char* nvmlErrorString(int error) {
  switch (error) {
    case kOk: return "Success";
    case kUninitialized: return "Uninitialized";
    case kInvalidArgument: return "Invalid Argument";
    case kUnsupported: return "Not Supported";
    case kUnfound: return "Not Found";
    case kInsufficientSize: return "Insufficient Size";
    default: return "Unknown Error";
  }
}
PRESIM_EXPORT int nvmlSystemGetDriverVersion(char* out, unsigned bytes) { return give(out, bytes, kDriverVersion); }
PRESIM_EXPORT int nvmlSystemGetNVMLVersion(char* out, unsigned bytes) { return give(out, bytes, kNvmlVersion); }
PRESIM_EXPORT int nvmlSystemGetCudaDriverVersion(int* out) {
  if (out == nullptr) return kInvalidArgument;
  *out = device_config().driver_version;
  return kOk;
}
PRESIM_EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* out) { return nvmlSystemGetCudaDriverVersion(out); }

PRESIM_EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  if (count == nullptr) return kInvalidArgument;
  *count = unsigned(gpu_count());
  return kOk;
}
PRESIM_EXPORT int nvmlDeviceGetCount(unsigned* count) { return nvmlDeviceGetCount_v2(count); }
PRESIM_EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* out) {
  if (out == nullptr || !valid_gpu(int(index))) return kInvalidArgument;
  *out = handle(int(index));
  return kOk;
}
PRESIM_EXPORT int nvmlDeviceGetHandleByIndex(unsigned index, Device* out) { return nvmlDeviceGetHandleByIndex_v2(index, out); }
PRESIM_EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* id, Device* out) {
  int gpu = 0;
  if (id == nullptr || out == nullptr) return kInvalidArgument;
  if (!gpu_by_pci_bus_id(&gpu, id)) return kUnfound;
  *out = handle(gpu);
  return kOk;
}
PRESIM_EXPORT int nvmlDeviceGetHandleByUUID(const char* uuid, Device* out) {
  if (uuid == nullptr || out == nullptr) return kInvalidArgument;
  for (int i = 0; i < gpu_count(); ++i) {
    if (device_uuid_text(i) == uuid) return *out = handle(i), kOk;
  }
  return kUnfound;
}

PRESIM_EXPORT int nvmlDeviceGetIndex(Device device, unsigned* out) { return give(device, out, unsigned(number(device))); }
PRESIM_EXPORT int nvmlDeviceGetMinorNumber(Device device, unsigned* out) { return give(device, out, unsigned(number(device))); }
PRESIM_EXPORT int nvmlDeviceGetName(Device device, char* out, unsigned bytes) {
  return valid(device) ? give(out, bytes, device_config().name) : int(kInvalidArgument);
}
PRESIM_EXPORT int nvmlDeviceGetUUID(Device device, char* out, unsigned bytes) {
  return valid(device) ? give(out, bytes, device_uuid_text(number(device))) : int(kInvalidArgument);
}
PRESIM_EXPORT int nvmlDeviceGetPciInfo_v3(Device device, PciInfo* out) { return pci_info(device, out); }
PRESIM_EXPORT int nvmlDeviceGetPciInfo_v2(Device device, PciInfo* out) { return pci_info(device, out); }
PRESIM_EXPORT int nvmlDeviceGetMemoryInfo(Device device, Memory* out) {
  if (out == nullptr || !valid(device)) return kInvalidArgument;
  memory_of(device, &out->total, &out->free, &out->used);
  return kOk;
}
PRESIM_EXPORT int nvmlDeviceGetMemoryInfo_v2(Device device, Memory2* out) {
  if (out == nullptr || !valid(device)) return kInvalidArgument;
  memory_of(device, &out->total, &out->free, &out->used);
  out->reserved = 0;
  return kOk;
}
PRESIM_EXPORT int nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  if (major == nullptr || minor == nullptr || !valid(device)) return kInvalidArgument;
  *major = device_config().compute_major;
  *minor = device_config().compute_minor;
  return kOk;
}
PRESIM_EXPORT int nvmlDeviceGetMemoryBusWidth(Device device, unsigned* out) {
  return give(device, out, unsigned(device_config().memory_bus_bits));
}
PRESIM_EXPORT int nvmlDeviceGetUtilizationRates(Device device, Utilization* out) { return give(device, out, {0, 0}); }

// The program itself is the only process; NVML in a container lists none.
PRESIM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(Device device, unsigned* count, void*) {
  return give(device, count, 0u);
}
PRESIM_EXPORT int nvmlDeviceGetComputeRunningProcesses_v2(Device device, unsigned* count, void*) {
  return give(device, count, 0u);
}
PRESIM_EXPORT int nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count, void*) { return give(device, count, 0u); }

// All GPUs of the node are connected; links are not distinguished.
PRESIM_EXPORT int nvmlDeviceGetP2PStatus(Device device, Device peer, int, int* out) {
  return valid(peer) ? give(device, out, 0) : int(kInvalidArgument);
}
PRESIM_EXPORT int nvmlDeviceGetNvLinkState(Device device, unsigned, unsigned* active) { return give(device, active, 1u); }
PRESIM_EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned, int* type) {
  constexpr int kSwitch = 2;
  return give(device, type, kSwitch);
}
PRESIM_EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned, PciInfo* out) { return pci_info(device, out); }
PRESIM_EXPORT int nvmlDeviceGetGpuFabricInfoV(Device device, FabricInfo* out) {
  if (out == nullptr || !valid(device)) return kInvalidArgument;
  out->state = 0;  // no fabric across nodes
  out->status = 0;
  return kOk;
}
