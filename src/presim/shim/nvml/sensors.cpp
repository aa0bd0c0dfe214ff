// What a program reads of the GPU's sensors and of the host beside it. Nothing is measured: a GPU is read at its power
// limit and maximum clocks, near all CPUs that the process may use. The first reading leaves a remark.
#include <sched.h>

#include <chrono>
#include <cstring>

#include "core/config.h"
#include "core/recorder.h"
#include "core/visible_gpus.h"
#include "nvml.h"

using namespace presim;
using namespace presim::nvml;

namespace {

constexpr unsigned kTemperature = 50, kMemoryClock = 2;  // degrees Celsius; NVML's number of that clock

bool valid(Device device) {
  intptr_t gpu = reinterpret_cast<intptr_t>(device) - 1;
  return gpu >= 0 && gpu < gpu_count();
}

template <class T>
int give(Device device, T* out, T value) {
  if (out == nullptr || !valid(device)) return kInvalidArgument;
  *out = value;
  return kOk;
}

template <class T>
int read_sensor(Device device, T* out, T value) {
  static const bool said = [] {
    note("remark The program read the GPU's sensors by NVML. They showed the power limit, maximum clocks and 50 degrees "
         "Celsius, which nobody measured.");
    return true;
  }();
  (void)said;
  return give(device, out, value);
}

unsigned clock_MHz(unsigned kind) {
  const DeviceConfig& config = device_config();
  return unsigned((kind == kMemoryClock ? config.memory_clock_khz : config.clock_khz) / 1000);
}

double seconds_since_start() {
  static const auto start = std::chrono::steady_clock::now();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The CPUs that this process may use, as bits of words.
int cpus(Device device, unsigned words, unsigned long* out) {
  if (out == nullptr || words == 0 || !valid(device)) return kInvalidArgument;
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return kOther;
  constexpr unsigned kBits = 8 * sizeof(unsigned long);
  std::memset(out, 0, words * sizeof *out);
  for (unsigned cpu = 0; cpu < words * kBits && cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &allowed)) out[cpu / kBits] |= 1ul << cpu % kBits;
  }
  return kOk;
}

}  // namespace

PRESIM_EXPORT int nvmlDeviceGetPowerUsage(Device device, unsigned* milliwatts) {
  return read_sensor(device, milliwatts, unsigned(device_config().power_mw));
}
PRESIM_EXPORT int nvmlDeviceGetTotalEnergyConsumption(Device device, unsigned long long* millijoules) {
  double spent = device_config().power_mw * seconds_since_start();
  return read_sensor(device, millijoules, static_cast<unsigned long long>(spent));
}
PRESIM_EXPORT int nvmlDeviceGetTemperature(Device device, unsigned, unsigned* celsius) {
  return read_sensor(device, celsius, kTemperature);
}
PRESIM_EXPORT int nvmlDeviceGetClockInfo(Device device, unsigned kind, unsigned* MHz) {
  return read_sensor(device, MHz, clock_MHz(kind));
}
PRESIM_EXPORT int nvmlDeviceGetMaxClockInfo(Device device, unsigned kind, unsigned* MHz) {
  return give(device, MHz, clock_MHz(kind));
}
PRESIM_EXPORT int nvmlDeviceGetPowerManagementLimit(Device device, unsigned* milliwatts) {
  return give(device, milliwatts, unsigned(device_config().power_mw));
}
PRESIM_EXPORT int nvmlDeviceGetPowerManagementDefaultLimit(Device device, unsigned* milliwatts) {
  return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}
PRESIM_EXPORT int nvmlDeviceGetEnforcedPowerLimit(Device device, unsigned* milliwatts) {
  return nvmlDeviceGetPowerManagementLimit(device, milliwatts);
}

PRESIM_EXPORT int nvmlDeviceGetCpuAffinity(Device device, unsigned words, unsigned long* out) {
  return cpus(device, words, out);
}
PRESIM_EXPORT int nvmlDeviceGetCpuAffinityWithinScope(Device device, unsigned words, unsigned long* out, unsigned) {
  return cpus(device, words, out);
}
// The process already runs on the CPUs that are near the GPU.
PRESIM_EXPORT int nvmlDeviceSetCpuAffinity(Device device) { return valid(device) ? kOk : kInvalidArgument; }
PRESIM_EXPORT int nvmlDeviceClearCpuAffinity(Device device) { return nvmlDeviceSetCpuAffinity(device); }
