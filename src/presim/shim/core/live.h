// The live clock: current time of the simulated host.
//
// After each wait, the launcher's simulation returns the host's time. From there it advances by the process's CPU
// time, scaled by the recent speed in the simulation, plus the cost of real calls, without further queries. If a later
// answer is earlier than a time that the program has already read, the clock stops until the simulated host catches
// up. Times are ns since the first record. Active only in a process in which $PRESIM_LIVE holds "pace launch_ns
// product_ns transfer_ns collective_ns event_ns …", the fields of CallCosts.
#pragma once
#include <ctime>

#include <cstdint>

#include "recorder.h"
#include "simulator.h"

namespace presim {

// A moment in the log.
struct Moment {
  uint64_t count = 0;     // records until then
  int64_t cpu_ns = 0;     // as Record::cpu_ns
  int64_t extra_ns = 0;   // host time so far that is not CPU time: cost of real launches, sleep
};

// CPU time of real calls, ns; those of memory: one call, and each MiB. engine/calls.py has the source.
struct CallCosts {
  int64_t launch = 0, product = 0, transfer = 0, collective = 0, event = 0;
  int64_t device_alloc = 0, device_alloc_MiB = 0, device_free = 0, device_free_MiB = 0;
  int64_t lock = 0, lock_MiB = 0, unlock = 0, unlock_MiB = 0, first_touch_MiB = 0;
};

// Guarded by the recorder's mutex.
class LiveClock {
 public:
  LiveClock();
  bool on() const { return on_; }
  bool begun() const { return begun_; }

  // Cost of a real call; `work`: descriptor of its device work. Does not need the mutex, and takes another one.
  int64_t cost_ns(Kind kind, int32_t work, int64_t object = 0, int64_t value = 0) const;

  // A record was appended by a call of its own with this cost, together with `count` others.
  void appended(Kind kind, int64_t cpu_ns, int64_t value, int64_t cost_ns, int64_t count = 1);
  int64_t extra_ns() const { return extra_ns_; }

  // Current time of the host as shown to the program; certain as long as no stream can be full.
  int64_t show(int64_t cpu_ns);
  bool certain() const { return launches_ < room_; }

  // Sets the simulation's result for a moment. Results older than the last one are ignored.
  void answered(const Moment& moment, const Answer& answer);

 private:
  int64_t host_call_ns(HostCall call, int64_t bytes) const;

  bool on_ = false, begun_ = false;
  double pace_ = 1;
  CallCosts costs_;
  Moment since_;
  int64_t host_ns_ = 0;     // where the host stood then
  int64_t shown_ns_ = 0;    // the clock never goes back before it
  int64_t extra_ns_ = 0;
  int64_t launches_ = 0, room_ = 0;  // since the last answer
};

// Whether this process has a live clock: synchronisations wait for the simulation, event queries ask it.
PRESIM_API bool live();

// A thread that waits until a moment in vain must see its clock there, although other clocks do not advance
// (timed_waits.cpp). This holds until the thread's next call that is recorded or queries the simulation.
int64_t& own_moment_ns();

// Current time of the simulated host, ns since the first record; -1: no record yet, or the clock is not live.
int64_t live_ns();

// Simulated clocks continue from their current values (host_clock.cpp).
void begin_simulated_time();

// ns since the first record at which a clock shows a time; -1: that clock is not simulated.
int64_t live_ns_of(clockid_t clock, const timespec& shown);

// The simulation's result for the current moment. It sets the live clock.
Answer ask_now(Ask ask, int64_t first = 0, int64_t second = 0);

}  // namespace presim
