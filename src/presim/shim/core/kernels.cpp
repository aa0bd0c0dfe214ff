#include "kernels.h"

#include <algorithm>
#include <mutex>
#include <string>
#include <unordered_map>

#include "config.h"
#include "memory.h"
#include "slab.h"

namespace presim {

struct Module {
  std::atomic<bool> live{false};
  std::unordered_map<std::string, Kernel*> kernels;
  std::unordered_map<std::string, void*> globals;
};

namespace {

constexpr size_t kMostKernels = size_t(1) << 20;
constexpr size_t kGlobalBytes = 4096;  // size of a module's variable; only the image has the real size

struct Known {
  std::mutex mutex;
  std::unordered_map<const void*, Kernel*> by_host_function;
  Slab<Kernel, kMostKernels> kernels;
  Slab<Module, kMostKernels> modules;
  Known() { by_host_function.reserve(32768); }
};

Known& all() {
  static auto* instance = new Known;
  return *instance;
}

}  // namespace

void register_kernel(const void* host_function, const char* name, const void* image) {
  Known& known = all();
  Kernel* kernel = known.kernels.acquire();
  if (kernel == nullptr) return;
  kernel->name = name;
  kernel->image = image;
  std::lock_guard lock(known.mutex);
  known.by_host_function[host_function] = kernel;
}

Kernel* find_kernel(const void* function) {
  Known& known = all();
  if (Kernel* kernel = known.kernels.find(function)) return kernel;
  std::lock_guard lock(known.mutex);
  auto found = known.by_host_function.find(function);
  return found == known.by_host_function.end() ? nullptr : found->second;
}

int load_module(Module** out, const void* image) {
  if (out == nullptr || image == nullptr) return kInvalidValue;
  if (int status = device_ready()) return status;
  *out = all().modules.acquire();
  return *out != nullptr ? kSuccess : kOutOfMemory;
}

Module* find_module(void* module) { return all().modules.find(module); }

int unload_module(void* handle) {
  Known& known = all();
  Module* module = known.modules.find(handle);
  if (module == nullptr) return kInvalidHandle;
  std::lock_guard lock(known.mutex);
  for (auto& [name, kernel] : module->kernels) known.kernels.release(kernel);
  for (auto& [name, address] : module->globals) free_device(address);
  return known.modules.release(module) ? kSuccess : kInvalidHandle;
}

int module_kernel(Kernel** out, void* handle, const char* name) {
  Known& known = all();
  Module* module = known.modules.find(handle);
  if (out == nullptr || name == nullptr) return kInvalidValue;
  if (module == nullptr) return kInvalidHandle;
  std::lock_guard lock(known.mutex);
  auto [found, added] = module->kernels.try_emplace(name, nullptr);
  if (added) {
    found->second = known.kernels.acquire();
    if (found->second == nullptr) return module->kernels.erase(found), kOutOfMemory;
    found->second->name = found->first.c_str();
    found->second->module = module;
  }
  *out = found->second;
  return kSuccess;
}

int module_global(void** address, size_t* bytes, void* handle, const char* name) {
  Known& known = all();
  Module* module = known.modules.find(handle);
  if (name == nullptr) return kInvalidValue;
  if (module == nullptr) return kInvalidHandle;
  std::lock_guard lock(known.mutex);
  auto [found, added] = module->globals.try_emplace(name, nullptr);
  if (added) {
    if (int status = allocate_device(&found->second, kGlobalBytes)) return status;
  }
  if (address != nullptr) *address = found->second;
  if (bytes != nullptr) *bytes = kGlobalBytes;
  return kSuccess;
}

// Registers and static shared memory of a kernel are unknown: 64 registers a thread are assumed, as in many kernels.
int blocks_per_sm(const Kernel& kernel, int block_size, size_t dynamic_shared) {
  const DeviceConfig& device = device_config();
  if (block_size <= 0 || block_size > 1024) return 0;
  constexpr int64_t kReserved = 1024;  // of shared memory, per block
  int64_t by_threads = device.threads_per_sm / block_size;
  int64_t by_registers = device.registers_per_sm / (int64_t(kernel.registers) * ((block_size + 31) / 32 * 32));
  int64_t by_shared = device.shared_per_sm / (int64_t(dynamic_shared) + kReserved);
  return int(std::min({by_threads, by_registers, by_shared, int64_t(32)}));
}

}  // namespace presim
