#include "config.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

namespace presim {
namespace {

struct Number {
  const char* key;
  int64_t DeviceConfig::*wide;
  int DeviceConfig::*narrow;
};

constexpr Number kNumbers[] = {
    {"count", nullptr, &DeviceConfig::count},
    {"compute_major", nullptr, &DeviceConfig::compute_major},
    {"compute_minor", nullptr, &DeviceConfig::compute_minor},
    {"sm_count", nullptr, &DeviceConfig::sm_count},
    {"memory_bytes", &DeviceConfig::memory_bytes, nullptr},
    {"context_bytes", &DeviceConfig::context_bytes, nullptr},
    {"l2_bytes", &DeviceConfig::l2_bytes, nullptr},
    {"clock_khz", nullptr, &DeviceConfig::clock_khz},
    {"memory_clock_khz", nullptr, &DeviceConfig::memory_clock_khz},
    {"memory_bus_bits", nullptr, &DeviceConfig::memory_bus_bits},
    {"shared_per_block_optin", &DeviceConfig::shared_per_block_optin, nullptr},
    {"shared_per_sm", &DeviceConfig::shared_per_sm, nullptr},
    {"registers_per_sm", nullptr, &DeviceConfig::registers_per_sm},
    {"threads_per_sm", nullptr, &DeviceConfig::threads_per_sm},
    {"driver_version", nullptr, &DeviceConfig::driver_version},
    {"power_mw", &DeviceConfig::power_mw, nullptr},
};

// Unknown keys are ignored, so that a newer launcher works with an older shim.
void set(DeviceConfig& config, const std::string& key, const std::string& value) {
  if (key == "name") config.name = value;
  for (const Number& number : kNumbers) {
    if (key != number.key) continue;
    int64_t parsed = std::strtoll(value.c_str(), nullptr, 10);
    if (number.wide != nullptr) config.*number.wide = parsed;
    if (number.narrow != nullptr) config.*number.narrow = int(parsed);
  }
}

DeviceConfig read() {
  DeviceConfig config;
  const char* path = std::getenv("PRESIM_DEVICE");
  if (path == nullptr) return config;
  std::ifstream file(path);
  if (!file) std::fprintf(stderr, "presim: cannot read the device description %s; this process has no GPU\n", path);
  std::string key, value;
  while (file >> key && std::getline(file >> std::ws, value)) set(config, key, value);
  return config;
}

}  // namespace

const DeviceConfig& device_config() {
  static const auto* config = new DeviceConfig(read());
  return *config;
}

}  // namespace presim
