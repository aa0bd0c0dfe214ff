// A rank that begins as the fork of a process which has imported what all ranks import (presim/capture/zygote.py). That
// process has no log; each of its children has one of its own, as if it had been started by itself.
#include "fork.h"
#include "own_time.h"
#include "recorder.h"
#include "text_file.h"

using namespace presim;

// Before the fork: whether nothing was asked of the device yet that a log should have.
extern "C" PRESIM_API int presim_is_unused() { return !is_used() && !lines_were_lost(); }

// In the child, which has a rank's environment by now.
extern "C" PRESIM_API void presim_rank_begins() {
  forget_own_time();
  expect_log();
}
