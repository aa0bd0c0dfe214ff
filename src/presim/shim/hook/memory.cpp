// Records every block that the caching allocator allocates or frees, with its exact size.
//
// The allocator reports requested bytes, but its statistics count the block (rounded up, or a cached block that was not
// split). An ALLOC is reported before the statistics change and a FREE after, so a block's size follows from the
// statistics at the next report. Until then it is PyTorch's rounding of the request.
#include <c10/cuda/CUDACachingAllocator.h>

#include <array>
#include <unordered_map>

#include "blocks.h"
#include "device.h"
#include "memory.h"
#include "misuse.h"
#include "operators.h"
#include "own_time.h"
#include "recorder.h"

extern "C" void presim_zero_block(void* address, size_t bytes);

namespace presim::hook {
namespace {

using c10::CachingDeviceAllocator::TraceEntry;

struct Blocks {
  std::unordered_map<size_t, int64_t> bytes;  // by address
  int64_t allocated = 0;                      // from the statistics at the last report
  size_t pending = 0;                         // address of the block whose size is not known exactly yet
  uint64_t pending_record = UINT64_MAX;
};

Blocks& blocks(c10::DeviceIndex device) {
  static auto* states = new std::array<Blocks, kMaxDevices>;  // each is guarded by the lock of its device's allocator
  return (*states)[size_t(device)];
}

int64_t allocated_now(c10::DeviceIndex device) {
  return c10::cuda::CUDACachingAllocator::getDeviceStats(device).allocated_bytes[0].current;
}

void settle_pending(Blocks& state, int64_t bytes) {
  if (state.pending_record == UINT64_MAX || bytes <= 0) return;
  state.bytes[state.pending] = bytes;
  Record* record = record_at(state.pending_record);
  if (record != nullptr) record->value = bytes;
  state.pending_record = UINT64_MAX;
}

uint64_t append_block(Kind kind, const TraceEntry& entry, int64_t bytes) {
  uint64_t index = append(kind, recorded_device(entry.device_), int64_t(entry.addr_), bytes);
  Record* record = record_at(index);
  if (record != nullptr && context().op_depth == 0) record->op = current_range();
  return index;
}

// A graph's pool reuses memory without reports (checkpoints of its state, dead tensors), so its live blocks are
// unknown. Versions of PyTorch that do not report the pool have no blocks to compare with.
template <class Entry>
bool of_the_common_pool(const Entry& entry) {
  if constexpr (requires { entry.mempool_; }) return entry.mempool_.first == 0 && entry.mempool_.second == 0;
  return false;
}

void block_given(const TraceEntry& entry) {
  Blocks& state = blocks(entry.device_);
  int64_t now = allocated_now(entry.device_);
  settle_pending(state, now - state.allocated);
  state.allocated = now;
  int64_t rounded = std::max<int64_t>(512, (int64_t(entry.size_) + 511) / 512 * 512);
  state.bytes[entry.addr_] = rounded;
  state.pending = entry.addr_;
  state.pending_record = append_block(Kind::Alloc, entry, rounded);
  if (of_the_common_pool(entry)) block_begins(entry.addr_, size_t(rounded));
  presim_zero_block(reinterpret_cast<void*>(entry.addr_), entry.size_);
}

void block_returned(const TraceEntry& entry) {
  Blocks& state = blocks(entry.device_);
  int64_t now = allocated_now(entry.device_);
  auto found = state.bytes.find(entry.addr_);
  int64_t bytes = found == state.bytes.end() ? int64_t(entry.size_) : found->second;
  if (state.pending != entry.addr_) settle_pending(state, now + bytes - state.allocated);
  state.pending_record = UINT64_MAX;
  state.allocated = now;
  if (found != state.bytes.end()) state.bytes.erase(found);
  block_ends(entry.addr_);
  append_block(Kind::Free, entry, bytes);
}

}  // namespace

void install_allocator_tracker() {
  c10::cuda::CUDACachingAllocator::attachAllocatorTraceTracker([](const TraceEntry& entry) {
    OwnTime observing;
    if (entry.action_ == TraceEntry::ALLOC) block_given(entry);
    if (entry.action_ == TraceEntry::FREE_REQUESTED) block_returned(entry);
    bool grows = entry.action_ == TraceEntry::SEGMENT_ALLOC || entry.action_ == TraceEntry::SEGMENT_MAP;
    bool shrinks = entry.action_ == TraceEntry::SEGMENT_FREE || entry.action_ == TraceEntry::SEGMENT_UNMAP;
    if (grows && of_the_common_pool(entry)) segment_begins(entry.addr_, entry.size_);
    if (shrinks) segment_ends(entry.addr_, entry.size_);
  });
  set_block_check(check_blocks);
}

}  // namespace presim::hook
