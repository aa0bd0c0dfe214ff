// The shared file of one rank's calls (nccl_joins.h). Only that rank counts; others register what they wait for.
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace presim::libs::nccl::joins {

constexpr int kMostRanks = 256;        // that run at once; capture/ranks/selection.py has the same limit
constexpr uint64_t kMostChannels = 1 << 16;

struct Wanted {
  std::atomic<uint64_t> key, number;  // key 0: nothing
  std::atomic<uint32_t> signal;       // futex
  uint32_t unused;
};

struct Count {
  std::atomic<uint64_t> key, calls;  // key 0: free
};

struct Table {
  std::atomic<uint32_t> waiting;  // number of ranks that wait
  std::atomic<uint32_t> is_full;  // further channels are not counted: nobody may wait for this rank
  Wanted wanted[kMostRanks];      // by place of the waiting rank
  Count counts[kMostChannels];    // a hash table
};

// A mapping of a rank's file; nullptr: it does not exist yet.
Table* create_table(const std::string& path);
Table* open_table(const std::string& path);

// The count of a channel; nullptr: none yet. Its own rank adds it.
Count* find_count(Table& table, uint64_t key);
Count* add_count(Table& table, uint64_t key);

// Registers a wait for a number; returns the value to sleep on. `place`: of the waiting rank.
uint32_t begin_wait(Table& table, int place, uint64_t key, uint64_t number);
void sleep_on(Table& table, int place, uint32_t signal);  // until the number is reached, at most 100 ms
void end_wait(Table& table, int place);
// Wakes those that wait for this number; false: nobody.
bool wake(Table& table, uint64_t key, uint64_t number);

}  // namespace presim::libs::nccl::joins
