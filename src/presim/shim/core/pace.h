// Measures the current speed of this CPU at typical host work of GPUs, relative to the reference host.
//
// CPU time excludes other processes but not their effect: after context switches, and with other processes in the same
// caches, the same code takes up to three times as long. These two measurements change in the same way
// (docs/decisions/host-time.md), so that CPU time divided by them is the time of the reference host, independent of
// other load:
//
// - Caches: current latency of loads relative to the time since the last load of the same lines. The share of a
//   program's time in which it waits for evicted lines is assumed to be proportional.
// - Core: a small loop of unpredictable branches in warm caches.
//
// A program that computes for a long time without using the device refills its caches, and later cache misses are its
// own. Only the core's speed applies to such time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

namespace presim {

class Pace {
 public:
  Pace();
  ~Pace();

  // Time of the reference host for this CPU time of the program in one uninterrupted stretch that ends now.
  double reference_ns(int64_t passed_ns) const {
    int64_t finding_ns = std::min(passed_ns, kFound_ns);
    return double(finding_ns) / slowdown_ + double(passed_ns - finding_ns) / core_;
  }

  // To be called often, within own time. Measures if a measurement is due. `program_ns`: the program's CPU time.
  void look(int64_t program_ns) {
    if (program_ns - last_ns_ >= kEvery_ns) measure(program_ns);
  }

  // The process waited for us while others used the caches. The next measurement would be wrong.
  void waited() { waited_ = true; }

 private:
  struct Memory;
  static constexpr int64_t kEvery_ns = 50000;
  static constexpr int64_t kFound_ns = 500000;  // after such a stretch the program's data are in the caches again

  void measure(int64_t program_ns);
  double load_ns();  // latency of one load, without the first ones of each chain
  double work_ns();

  std::unique_ptr<Memory> memory_;
  int64_t last_ns_ = -kEvery_ns;
  bool waited_ = false;
  uint64_t looks_ = 0;
  double loads_ns_ = 0, passed_ns_ = 0;  // latencies, and times since the last load; exponentially weighted
  int works_ = 0;
  double works_ns_ = 0;
  double core_ = 1, slowdown_ = 1;  // CPU time relative to the reference host
};

}  // namespace presim
