// How long this CPU takes, at this moment, for what the host of a GPU does, beside a reference host.
//
// CPU time leaves out what else runs, but not what that costs: after switches to other processes, and beside neighbours
// in the same caches, the same code takes up to three times its time. What is measured here goes the same way
// (docs/decisions/host-time.md), so that CPU time divided by it is the reference host's, whatever else runs:
//
// - how fast the caches lose what the program uses: what loads take now, per time since they were last made. The share
//   of a program's time in which it waits for what was lost is taken to be in proportion;
// - the core: a small loop of unpredictable branches in warm caches.
//
// A program that computes for long without asking the device for anything has the caches to itself: what it lost is found
// again by then, and what loads take behind it, it did itself. Only the core slows such time.
#pragma once
#include <algorithm>
#include <cstdint>
#include <memory>

namespace presim {

class Pace {
 public:
  Pace();
  ~Pace();

  // What the reference host would take for so much CPU time of the program in one stretch, which ends now.
  double reference_ns(int64_t passed_ns) const {
    int64_t finding_ns = std::min(passed_ns, kFound_ns);
    return double(finding_ns) / slowdown_ + double(passed_ns - finding_ns) / core_;
  }

  // To be called often, within own time: measures where that is due. `program_ns`: the CPU time of the program so far.
  void look(int64_t program_ns) {
    if (program_ns - last_ns_ >= kEvery_ns) measure(program_ns);
  }

  // The process waited for us, and others had the caches meanwhile: the next measure would take that for the machine's.
  void waited() { waited_ = true; }

 private:
  struct Memory;
  static constexpr int64_t kEvery_ns = 50000;
  static constexpr int64_t kFound_ns = 500000;  // after so long a stretch the program has found again what it uses

  void measure(int64_t program_ns);
  double load_ns();  // of one load, without those that were just begun with
  double work_ns();

  std::unique_ptr<Memory> memory_;
  int64_t last_ns_ = -kEvery_ns;
  bool waited_ = false;
  uint64_t looks_ = 0;
  double loads_ns_ = 0, passed_ns_ = 0;  // of lines, and since they were last loaded; the past counts less and less
  int works_ = 0;
  double works_ns_ = 0;
  double core_ = 1, slowdown_ = 1;  // CPU time over what the reference host takes
};

}  // namespace presim
