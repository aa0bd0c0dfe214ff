// A rank that starts as a fork of a process with the common imports of all ranks (presim/capture/zygote.py). That
// process has no log. Each child has its own, as if it had been started by itself.
#include "fork.h"
#include "own_time.h"
#include "recorder.h"
#include "text_file.h"

using namespace presim;

// Before the fork: whether the device was not used yet in a way that a log should have.
extern "C" PRESIM_API int presim_is_unused() { return !is_used() && !lines_were_lost(); }

// In the child, after its environment was set to that of a rank.
extern "C" PRESIM_API void presim_rank_begins() {
  forget_own_time();
  expect_log();
}
