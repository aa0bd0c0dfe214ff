// Payloads between rank processes that run concurrently on this machine.
//
// The launcher sets a directory, PRESIM_RANKS_DIR:
//
//   ranks       written by the launcher: one line per process, "<rank>" or "<rank> <ranks it represents>" as
//               first:end:step or single numbers, joined by commas
//   bell        one page: a counter that increases with every post; waiting processes watch it
//   joins-<r>   calls of rank r (nccl_join_table.h)
//   rank-<r>    posts of rank r (nccl_box.h); it only grows, so posting never waits
//
// All functions except active() require the exchange's lock (nccl_pending.h).
#pragma once
#include <cstdint>
#include <string>

#include "libs/nccl_box.h"

namespace presim::libs::nccl::mail {

// Whether this process is one of several concurrent ranks.
bool active();

// The captured rank that represents a rank of the world, itself or another; -1: none.
int64_t voice_of(int64_t rank);
int64_t own_rank();
int own_place();  // among the concurrent ranks, by rank
const std::string& directory();

void post(const Key& key, const std::string& payload);
// The post of `rank` under that key; false: not yet. It can be taken only once.
bool take(int64_t rank, const Key& key, std::string* payload);
// No further posts of that rank: its process has ended.
bool over(int64_t rank);

// The bell; it moves when a rank posts, ends, or does what another one waits for.
uint32_t bell();
void ring();
// Waits until the bell moves, at most 50 ms. Called without the lock.
void wait(uint32_t heard);
// Records that this process is blocked until the bell moves from this position.
void stuck(uint32_t heard);
void unstuck();
// Whether all processes are blocked and this is the first of them, which has to stop waiting.
bool nobody_moves(uint32_t heard);

// No rank waits for calls of others any more, because the ranks are in a deadlock.
void abandon_waits();
bool waits_abandoned();

// Records that this process makes no further posts.
void end();

}  // namespace presim::libs::nccl::mail
