// Properties of the emulated device by number; runtime and driver use the same numbers.
#pragma once
#include <cstdint>
#include <string>

#include "device.h"

namespace presim {

int device_attribute(int* value, int attribute, int device);
// "0000:1B:00.0"
std::string pci_bus_id(int device);
bool device_by_pci_bus_id(int* device, const char* id);
// 16 bytes, different for every device of the node.
void device_uuid(unsigned char* out, int device);
// "GPU-70726573-..."
std::string device_uuid_text(int device);

}  // namespace presim
