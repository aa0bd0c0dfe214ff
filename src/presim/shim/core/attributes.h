// Properties of the emulated device by number, which runtime and driver share. `gpu`: its number in the node
// (visible_gpus.h).
#pragma once
#include <cstdint>
#include <string>

#include "device.h"

namespace presim {

int device_attribute(int* value, int attribute, int device);
// "0000:1B:00.0"
std::string pci_bus_id(int gpu);
int pci_bus(int gpu);
bool gpu_by_pci_bus_id(int* gpu, const char* id);
// 16 bytes, different for every GPU of the node.
void device_uuid(unsigned char* out, int gpu);
// "GPU-70726573-..."
std::string device_uuid_text(int gpu);

}  // namespace presim
