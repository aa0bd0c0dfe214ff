// The live clock: where the simulated host stands.
//
// The launcher's simulation says where it stands after each wait. From there on it spends the process's CPU time, at the
// pace that the simulation has found of late, and what real calls cost: no question is needed for that. Where the next
// answer lies before what the program has seen by then, the clock stands until the host has come so far. Times are ns
// since the first record. Only in a process whose $PRESIM_LIVE holds "pace launch_ns product_ns transfer_ns
// collective_ns event_ns".
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

// What real calls cost their host, ns: engine/calls.py says from where.
struct CallCosts {
  long long launch = 0, product = 0, transfer = 0, collective = 0, event = 0;
};

// Guarded by the recorder's mutex.
class LiveClock {
 public:
  LiveClock();
  bool on() const { return on_; }
  bool begun() const { return begun_; }

  // What a real call costs; `work`: the descriptor of what it puts on the device. Needs no mutex, and takes another one.
  int64_t cost_ns(Kind kind, int32_t work) const;

  // A record was appended that was asked for by a call of its own, which costs so much, and `count` with it.
  void appended(Kind kind, int64_t cpu_ns, int64_t value, int64_t cost_ns, int64_t count = 1);
  int64_t extra_ns() const { return extra_ns_; }

  // Where the host stands, for the program to see; certain as long as no stream can be full.
  int64_t show(int64_t cpu_ns);
  bool certain() const { return launches_ < room_; }

  // The simulation's word on a moment; an older word than the last one changes nothing.
  void answered(const Moment& moment, const Answer& answer);

 private:
  bool on_ = false, begun_ = false;
  double pace_ = 1;
  CallCosts costs_;
  Moment since_;
  int64_t host_ns_ = 0;     // where the host stood then
  int64_t shown_ns_ = 0;    // the clock does not go back behind it
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
