// Registration of kernels and variables by a compiled file before main.
#include <mutex>
#include <unordered_map>

#include "core/kernels.h"
#include "core/memory.h"
#include "runtime.h"
#include "symbols.h"

namespace presim::cudart {
namespace {

struct Symbol {
  size_t bytes = 0;
  void* address = nullptr;
};

std::mutex& mutex() {
  static auto* instance = new std::mutex;
  return *instance;
}
std::unordered_map<const void*, Symbol>& symbols() {
  static auto* instance = new std::unordered_map<const void*, Symbol>;
  return *instance;
}

}  // namespace

void register_symbol(const void* host_variable, size_t bytes) {
  std::lock_guard lock(mutex());
  symbols()[host_variable] = {bytes, nullptr};
}

int symbol_address(const void* host_variable, void** address, size_t* bytes) {
  if (int status = device_ready()) return status;
  std::lock_guard lock(mutex());
  auto found = symbols().find(host_variable);
  if (found == symbols().end()) return kInvalidSymbol;
  Symbol& symbol = found->second;
  // Variables are part of the module's image, which the context's memory includes: they take no capacity.
  if (symbol.address == nullptr) {
    Range range;
    range.bytes = (symbol.bytes + 4095) & ~size_t(4095);
    range.base = reinterpret_cast<uintptr_t>(reserve_addresses(range.bytes));
    range.space = Space::Device;
    range.device = current_device();
    add_range(range);
    symbol.address = reinterpret_cast<void*>(range.base);
  }
  if (address != nullptr) *address = symbol.address;
  if (bytes != nullptr) *bytes = symbol.bytes;
  return kSuccess;
}

}  // namespace presim::cudart

using namespace presim;
using namespace presim::cudart;

PRESIM_EXPORT void** __cudaRegisterFatBinary(void* image) { return new void*(image); }
PRESIM_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
// Nothing is unregistered: other exit handlers may still launch, and the names belong to the library being unloaded.
PRESIM_EXPORT void __cudaUnregisterFatBinary(void**) {}
PRESIM_EXPORT char __cudaInitModule(void**) { return 1; }

PRESIM_EXPORT void __cudaRegisterFunction(void** handle, const char* host_function, char*, const char* name, int, uint3*, uint3*,
                                          dim3*, dim3*, int*) {
  register_kernel(host_function, name, handle == nullptr ? nullptr : *handle);
}
PRESIM_EXPORT void __cudaRegisterVar(void**, char* variable, char*, const char*, int, size_t bytes, int, int) {
  register_symbol(variable, bytes);
}
PRESIM_EXPORT void __cudaRegisterManagedVar(void**, void** variable, char*, const char*, int, size_t bytes, int, int) {
  void* address = reserve_addresses((bytes + 4095) & ~size_t(4095));
  *variable = address;
  Range range;
  range.base = reinterpret_cast<uintptr_t>(address);
  range.bytes = (bytes + 4095) & ~size_t(4095);
  range.space = Space::Managed;
  add_range(range);
}

PRESIM_EXPORT cudaError_t cudaGetSymbolAddress(void** address, const void* symbol) {
  return result(address == nullptr ? int(kInvalidValue) : symbol_address(symbol, address, nullptr));
}
PRESIM_EXPORT cudaError_t cudaGetSymbolSize(size_t* bytes, const void* symbol) {
  return result(bytes == nullptr ? int(kInvalidValue) : symbol_address(symbol, nullptr, bytes));
}
