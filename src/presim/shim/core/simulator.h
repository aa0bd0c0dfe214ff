// Queries to the launcher, which simulates the log while this process waits.
//
// The socket (SOCK_SEQPACKET) is named "clock" in $PRESIM_LOG_DIR. Each Question has one Answer. Without the socket,
// or in a process without a log, there are no answers and the device takes no time.
#pragma once
#include <cstdint>

#include "recorder.h"

namespace presim {

enum class Ask : int64_t {
  Sync = 1,         // the host waits: `first` is the index of its record
  Now = 2,          // current time of the simulated host
  Event = 3,        // has the recording `first` ended? `second`: how many queries came before
  Stream = 4,       // has everything on stream `first` ended? `second`: the same
  Elapsed = 5,      // ns between the ends of the recordings `first` and `second`
};

struct Question {
  Ask ask;
  uint64_t count;   // records of the log until now
  int64_t cpu_ns;   // as Record::cpu_ns, now
  int64_t first, second;
};

struct Answer {
  int64_t status;   // 0: yes; 1: not yet; 2: cannot say
  int64_t host_ns;  // simulated host time at `cpu_ns`; for a Sync: the end of its wait
  int64_t value;    // ns; Elapsed: the duration; Event, if not yet: host time that passes at least until it has ended
  int64_t room;     // launches before a stream can be full
  int64_t ended;    // all recordings with a lower serial have ended
  double pace;      // host time over CPU time until the next answer
  int64_t ahead;    // Event, if not yet: launches that waits for full streams delay by less than 3/4 of `value`
  int64_t until;    // Event, if not yet: number of the first query with another answer than "not yet", if it is known
};

constexpr int64_t kYes = 0, kNotYet = 1, kNobody = 2;

// Whether there is a simulator. The first call connects.
bool simulator_answers();

// One query at a time. `Answer.status` is kNobody if the launcher has exited.
Answer ask_simulator(const Question& question);

}  // namespace presim
