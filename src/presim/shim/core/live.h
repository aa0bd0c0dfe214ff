// The live clock: where the simulated host stands.
//
// The launcher's simulation says where it stands after each wait. From there on it spends the process's CPU time, and
// what a real launch costs for every launch, as the simulation will have it: no question is needed for that. Times are
// ns since the first record. Only in a process whose $PRESIM_LIVE holds "factor launch_ns event_ns".
#pragma once
#include <ctime>

#include <cstdint>

#include "recorder.h"
#include "simulator.h"

namespace presim {

// Of a moment in the log.
struct Moment {
  uint64_t count = 0;     // records until then
  int64_t cpu_ns = 0;     // as Record::cpu_ns
  int64_t extra_ns = 0;   // host time until then that is no CPU time: what real launches would have cost, sleep
};

// Guarded by the recorder's mutex.
class LiveClock {
 public:
  LiveClock();
  bool on() const { return on_; }
  bool begun() const { return begun_; }

  // A record was appended that was asked for by a call of its own, and `count` with it.
  void appended(Kind kind, int64_t cpu_ns, int64_t value, int64_t count = 1);
  int64_t extra_ns() const { return extra_ns_; }

  // Where the host stands; certain as long as no stream can be full.
  int64_t at(int64_t cpu_ns) const;
  bool certain() const { return launches_ < room_; }

  // The simulation's word on a moment; an older word than the last one changes nothing.
  void answered(const Moment& moment, const Answer& answer);

 private:
  bool on_ = false, begun_ = false;
  double factor_ = 1;
  int64_t launch_cost_ns_ = 0, event_cost_ns_ = 0;
  Moment since_;
  int64_t host_ns_ = 0;     // where the host stood then
  int64_t extra_ns_ = 0;
  int64_t launches_ = 0, room_ = 0;  // since the last answer
};

// This process was asked for a live clock: synchronisations wait for the simulation, event queries ask it.
PRESIM_API bool live();

// A thread that waits for a moment in vain is to find its clock there, though nobody else's goes on (timed_waits.cpp).
// It is so until the thread's next call that is recorded or asks.
int64_t& own_moment_ns();

// Where the simulated host stands, in ns since the first record; -1: there is none yet, or the clock is not live.
int64_t live_ns();

// The clocks that the program reads go on from where they stand (host_clock.cpp).
void begin_simulated_time();

// ns since the first record at which a clock shows a time; -1: that clock is not simulated now.
int64_t live_ns_of(clockid_t clock, const timespec& shown);

// What the simulation says of the moment at which it is asked; an answer sets the live clock.
Answer ask_now(Ask ask, int64_t first = 0, int64_t second = 0);

// Whether a recording (Ask::Event) or all work of a stream (Ask::Stream) has ended where the host stands. Everything
// has where the clock is not live: the device takes no time there.
bool has_ended(Ask ask, int64_t of);

}  // namespace presim
