#include "libs/nccl_join_table.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>

namespace presim::libs::nccl::joins {
namespace {

// Pages that are never used take no memory.
Table* map_table(int file) {
  void* mapped = mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return mapped == MAP_FAILED ? nullptr : static_cast<Table*>(mapped);
}

// The place of a key, or the free place that it would have; nullptr: the table is full.
Count* place_of(Table& table, uint64_t key) {
  for (uint64_t step = 0; step < kMostChannels / 2; ++step) {
    Count& count = table.counts[(key + step) % kMostChannels];
    uint64_t there = count.key.load(std::memory_order_acquire);
    if (there == key || there == 0) return &count;
  }
  return nullptr;
}

}  // namespace

Table* create_table(const std::string& path) {
  int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0) return nullptr;
  if (ftruncate(file, sizeof(Table)) == 0) return map_table(file);
  close(file);
  return nullptr;
}

Table* open_table(const std::string& path) {
  int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  if (lseek(file, 0, SEEK_END) >= off_t(sizeof(Table))) return map_table(file);
  close(file);
  return nullptr;
}

Count* find_count(Table& table, uint64_t key) {
  Count* count = place_of(table, key);
  return count != nullptr && count->key.load(std::memory_order_acquire) == key ? count : nullptr;
}

Count* add_count(Table& table, uint64_t key) {
  Count* count = place_of(table, key);
  if (count == nullptr) table.is_full = 1;
  else count->key.store(key, std::memory_order_release);
  return count;
}

uint32_t begin_wait(Table& table, int place, uint64_t key, uint64_t number) {
  Wanted& wanted = table.wanted[place];
  uint32_t signal = wanted.signal.load();
  wanted.number = number;
  wanted.key = key;
  ++table.waiting;
  return signal;
}

void sleep_on(Table& table, int place, uint32_t signal) {
  timespec most{0, 100'000'000};
  syscall(SYS_futex, &table.wanted[place].signal, FUTEX_WAIT, signal, &most, nullptr, 0);
}

void end_wait(Table& table, int place) {
  table.wanted[place].key = 0;
  --table.waiting;
}

bool wake(Table& table, uint64_t key, uint64_t number) {
  if (table.waiting.load() == 0) return false;
  bool woke = false;
  for (Wanted& wanted : table.wanted) {
    if (wanted.key.load() != key || wanted.number.load() > number) continue;
    ++wanted.signal;
    syscall(SYS_futex, &wanted.signal, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    woke = true;
  }
  return woke;
}

}  // namespace presim::libs::nccl::joins
