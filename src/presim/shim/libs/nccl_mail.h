// Payloads between the rank processes that run together on this machine.
//
// The launcher names a directory, PRESIM_RANKS_DIR:
//
//   ranks       written by the launcher: a line for each process, "<rank>" or "<rank> <ranks it stands for>", those as
//               first:end:step or single numbers, joined by commas
//   bell        one page: a counter that moves with every post, which whoever waits watches
//   rank-<r>    what rank r has posted: see nccl_box.h; it only grows, so posting never waits
//
// All functions but active() are for the holder of the exchange's lock (nccl_pending.h).
#pragma once
#include <cstdint>
#include <string>

#include "libs/nccl_box.h"

namespace presim::libs::nccl::mail {

// Whether this process is one of several ranks that run together.
bool active();

// The rank that is captured and stands for a rank of the world, itself or another; -1: nobody.
int64_t voice_of(int64_t rank);
int64_t own_rank();

void post(const Key& key, const std::string& payload);
// What `rank` posted under that key; false: nothing yet. It can be taken once.
bool take(int64_t rank, const Key& key, std::string* payload);
// Nothing will come from that rank any more: its process has ended.
bool over(int64_t rank);

// The bell; it has moved when somebody posted or ended since.
uint32_t bell();
// Until the bell moves, at most 50 ms; called without the lock.
void wait(uint32_t heard);
// This process can do nothing more until the bell moves from here.
void stuck(uint32_t heard);
void unstuck();
// Nobody can, and this process is the first of those that cannot: it has to give up what it waits for.
bool nobody_moves(uint32_t heard);

// This process posts no more.
void end();

}  // namespace presim::libs::nccl::mail
