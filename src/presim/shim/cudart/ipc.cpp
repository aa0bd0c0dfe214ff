// Sharing between processes. Another process's memory is emulated by memory of the same size, which takes no capacity
// of this process and does not share content.
#include <cstring>

#include <unistd.h>

#include "core/events.h"
#include "core/memory.h"
#include "runtime.h"

using namespace presim;
using namespace presim::cudart;

namespace {

struct SharedMemory {
  char magic[8];
  int32_t process;
  int32_t device;
  uint64_t base, bytes;
};
constexpr char kMagic[8] = {'p', 'r', 'e', 's', 'i', 'm', 'I', 'P'};

int open_memory(void** out, const SharedMemory& shared) {
  if (out == nullptr || std::memcmp(shared.magic, kMagic, sizeof kMagic) != 0) return kInvalidValue;
  if (shared.process == getpid()) return kInvalidContext;  // CUDA does not open a handle in its own process
  Range range;
  range.bytes = shared.bytes;
  range.base = reinterpret_cast<uintptr_t>(reserve_addresses(shared.bytes));
  if (range.base == 0) return lacks_host_memory(range.bytes);
  range.space = Space::Device;
  range.device = current_device();
  add_range(range);
  *out = reinterpret_cast<void*>(range.base);
  return kSuccess;
}

}  // namespace

PRESIM_EXPORT cudaError_t cudaIpcGetMemHandle(cudaIpcMemHandle_t* out, void* address) {
  Range range;
  if (out == nullptr || !find_range(address, &range) || range.space != Space::Device) return result(kInvalidValue);
  SharedMemory shared{{}, getpid(), range.device, range.base, range.bytes};
  std::memcpy(shared.magic, kMagic, sizeof kMagic);
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, &shared, sizeof shared);
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaIpcOpenMemHandle(void** out, cudaIpcMemHandle_t handle, unsigned) {
  if (int status = device_ready()) return result(status);
  SharedMemory shared;
  std::memcpy(&shared, &handle, sizeof shared);
  return result(open_memory(out, shared));
}
PRESIM_EXPORT cudaError_t cudaIpcCloseMemHandle(void* address) {
  Range range;
  bool opened = find_range(address, &range) && range.space == Space::Device && range.charged == 0;
  if (!opened || !remove_range(range.base, &range)) return result(kInvalidValue);
  release_addresses(address, range.bytes);
  return cudaSuccess;
}

// An event of another process counts as recorded and ended.
PRESIM_EXPORT cudaError_t cudaIpcGetEventHandle(cudaIpcEventHandle_t* out, cudaEvent_t handle) {
  Event* event = find_event(handle);
  if (out == nullptr || event == nullptr) return result(out == nullptr ? kInvalidValue : kInvalidHandle);
  if ((event->flags & kEventInterprocess) == 0) return result(kInvalidHandle);
  std::memset(out, 0, sizeof *out);
  std::memcpy(out, kMagic, sizeof kMagic);
  return cudaSuccess;
}
PRESIM_EXPORT cudaError_t cudaIpcOpenEventHandle(cudaEvent_t* out, cudaIpcEventHandle_t handle) {
  if (std::memcmp(&handle, kMagic, sizeof kMagic) != 0) return result(kInvalidValue);
  return result(create_event(reinterpret_cast<Event**>(out), kEventInterprocess | kEventDisableTiming));
}
