#include "blocks.h"

#include <map>
#include <mutex>
#include <string>

#include "misuse.h"

namespace presim::hook {
namespace {

using Stretches = std::map<size_t, size_t>;  // address -> bytes, disjoint

struct Memory {
  std::mutex mutex;
  Stretches segments, blocks, freed;  // freed: former blocks, removed when their memory is reused
};

Memory& memory() {
  static auto* state = new Memory;
  return *state;
}

Stretches::iterator holding(Stretches& stretches, size_t address) {
  auto after = stretches.upper_bound(address);
  if (after == stretches.begin()) return stretches.end();
  auto found = std::prev(after);
  return address < found->first + found->second ? found : stretches.end();
}

// Removes all ranges that overlap [address, address + bytes).
void clear(Stretches& stretches, size_t address, size_t bytes) {
  auto at = holding(stretches, address);
  if (at == stretches.end()) at = stretches.lower_bound(address);
  while (at != stretches.end() && at->first < address + bytes) at = stretches.erase(at);
}

// Describes the misuse; empty if there is none.
std::string wrong(Memory& state, const Access& access) {
  auto address = reinterpret_cast<size_t>(access.address);
  if (holding(state.segments, address) == state.segments.end()) return "";
  auto block = holding(state.blocks, address);
  if (block == state.blocks.end()) {
    auto freed = holding(state.freed, address);
    if (freed == state.freed.end()) return in_words(access) + " memory of PyTorch's allocator that no tensor holds";
    return in_words(access) + " a block of " + of_bytes(freed->second) + " that was freed";
  }
  size_t end = block->first + block->second;
  if (address + access.bytes <= end) return "";
  return in_words(access) + " " + of_bytes(address + access.bytes - end) + " beyond the end of a block of " + of_bytes(block->second);
}

}  // namespace

void segment_begins(size_t address, size_t bytes) {
  std::lock_guard lock(memory().mutex);
  memory().segments[address] = bytes;
}

void segment_ends(size_t address, size_t bytes) {
  std::lock_guard lock(memory().mutex);
  clear(memory().segments, address, bytes);
  clear(memory().freed, address, bytes);
}

void block_begins(size_t address, size_t bytes) {
  std::lock_guard lock(memory().mutex);
  memory().blocks[address] = bytes;
  clear(memory().freed, address, bytes);
}

void block_ends(size_t address) {
  std::lock_guard lock(memory().mutex);
  auto found = memory().blocks.find(address);
  if (found == memory().blocks.end()) return;
  memory().freed[address] = found->second;
  memory().blocks.erase(found);
}

void check_blocks(const Access& access) {
  std::string text;
  {
    std::lock_guard lock(memory().mutex);
    text = wrong(memory(), access);
  }
  if (!text.empty()) report_misuse(text);
}

}  // namespace presim::hook
