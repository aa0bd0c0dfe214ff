// __device__ variables of the program and their memory on the device.
#pragma once
#include <cstddef>

namespace presim::cudart {

void register_symbol(const void* host_variable, size_t bytes);
// Memory is allocated at the first use; kInvalidSymbol for unregistered variables.
int symbol_address(const void* host_variable, void** address, size_t* bytes);

}  // namespace presim::cudart
