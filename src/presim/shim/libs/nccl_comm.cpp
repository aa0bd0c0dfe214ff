// NCCL communicators: created at once, without peers, and noted for the reader of the log.
#include <algorithm>
#include <atomic>
#include <climits>
#include <cstdlib>
#include <mutex>
#include <unordered_map>

#include "core/device.h"
#include "core/visible_gpus.h"
#include "libs/nccl.h"
#include "libs/nccl_joins.h"

namespace {
using namespace presim::libs;
using namespace presim::libs::nccl;

uint64_t hash(const void* data, size_t bytes, uint64_t seed = 0xcbf29ce484222325) {
  auto* text = static_cast<const unsigned char*>(data);
  for (size_t i = 0; i < bytes; ++i) seed = (seed ^ text[i]) * 0x100000001b3;
  return seed;
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016lx", static_cast<unsigned long>(value));
  return text;
}

struct Origin {
  int parent = -1, color = -1, key = -1;
};

int make(void** out, int size, int rank, uint64_t identity, Origin origin, int device = -1) {
  if (out == nullptr || (size != -1 && (size < 1 || rank < 0 || rank >= size))) return kInvalidArgument;
  static std::atomic<int32_t> serial{0};
  auto* comm = new Communicator;
  comm->serial = serial++;
  comm->size = size;
  comm->rank = rank;
  comm->device = device >= 0 ? device : presim::current_device();
  comm->gpu = presim::gpu_of(comm->device);
  comm->identity = identity;
  Text text("communicator");
  text.add("serial", comm->serial).add("size", size).add("rank", rank).add("parent", origin.parent);
  text.add("color", origin.color).add("key", origin.key).add("unique_id", hex(identity));
  presim::note(std::string(text));
  announce_gpu(*comm);
  if (is_in_group() || !can_learn_members(*comm)) return *out = comm, kSuccess;
  learn_members(*comm);
  if (int status = check_devices(*comm)) return delete comm, status;
  return *out = comm, kSuccess;
}

constexpr int kAnyColor = -1;

// Sizes of splits by colour. One rank cannot count which others pass its colour; the framework can.
std::mutex& sizes_lock() {
  static auto* lock = new std::mutex;
  return *lock;
}
std::unordered_map<int, int>& split_sizes() {
  static auto* sizes = new std::unordered_map<int, int>;
  return *sizes;
}

int split_size(int color) {
  std::lock_guard lock(sizes_lock());
  for (int key : {color, kAnyColor}) {
    auto found = split_sizes().find(key);
    if (found != split_sizes().end()) return found->second;
  }
  return -1;
}

int release(void* comm) {
  Communicator* found = checked(comm);
  if (found == nullptr) return kInvalidArgument;
  found->magic = 0;  // not freed: a watchdog thread may hold the handle and must get an error, not a crash
  return kSuccess;
}

}  // namespace

// Called by the capturing Python process before a split, with the colour it will pass or kAnyColor; 0 resets.
PRESIM_EXPORT void presim_nccl_split_size(int color, int size) {
  std::lock_guard lock(sizes_lock());
  split_sizes().erase(color);
  if (size > 0) split_sizes()[color] = size;
}

PRESIM_EXPORT int ncclGetUniqueId(UniqueId* id) {
  if (id == nullptr) return kInvalidArgument;
  static std::atomic<int> made{0};
  *id = UniqueId{};
  // Deterministic ids: logs of equal runs must be equal.
  std::snprintf(id->internal, sizeof id->internal, "presim rank %ld id %d", long(std::max<int64_t>(launched("RANK"), 0)),
                made++);
  return kSuccess;
}

PRESIM_EXPORT int ncclCommInitRankConfig(void** comm, int size, UniqueId id, int rank, void*) {
  return make(comm, size, rank, hash(&id, sizeof id), {});
}
PRESIM_EXPORT int ncclCommInitRank(void** comm, int size, UniqueId id, int rank) {
  return make(comm, size, rank, hash(&id, sizeof id), {});
}
PRESIM_EXPORT int ncclCommInitRankScalable(void** comm, int size, int rank, int count, UniqueId* ids, void*) {
  if (ids == nullptr || count < 1) return kInvalidArgument;
  return make(comm, size, rank, hash(ids, sizeof(UniqueId)), {});
}

PRESIM_EXPORT int ncclCommInitAll(void** comms, int count, const int* devices) {
  if (comms == nullptr || count < 1) return kInvalidArgument;
  UniqueId id;
  ncclGetUniqueId(&id);
  for (int i = 0; i < count; ++i) make(comms + i, count, i, hash(&id, sizeof id), {}, devices ? devices[i] : i);
  return kSuccess;
}

PRESIM_EXPORT int ncclCommSplit(void* comm, int color, int key, void** out, void*) {
  Communicator* parent = checked(comm);
  if (parent == nullptr || out == nullptr || color < -1) return kInvalidArgument;
  *out = nullptr;
  ++parent->splits;
  if (color == -1) return kSuccess;  // takes part but is in no new communicator
  uint64_t identity = hash(&color, sizeof color, hash(&parent->splits, sizeof parent->splits, parent->identity));
  return make(out, split_size(color), key, identity, {parent->serial, color, key}, parent->device);
}

PRESIM_EXPORT int ncclCommShrink(void* comm, int* excluded, int count, void** out, void*, int) {
  Communicator* parent = checked(comm);
  if (parent == nullptr || out == nullptr) return kInvalidArgument;
  int before = 0;
  for (int i = 0; i < count; ++i) before += excluded[i] < parent->rank;
  uint64_t identity = hash(excluded, sizeof(int) * size_t(count), parent->identity);
  return make(out, parent->size - count, parent->rank - before, identity, {parent->serial, -1, -1}, parent->device);
}

PRESIM_EXPORT int ncclCommGetUniqueId(void* comm, UniqueId* id) {
  return checked(comm) != nullptr ? ncclGetUniqueId(id) : int(kInvalidArgument);
}
PRESIM_EXPORT int ncclCommGrow(void* comm, int size, const UniqueId* id, int rank, void** out, void*) {
  Communicator* parent = checked(comm);
  uint64_t identity = id != nullptr ? hash(id, sizeof *id) : parent != nullptr ? parent->identity : 0;
  return make(out, size, rank >= 0 || parent == nullptr ? rank : parent->rank, identity,
              {parent != nullptr ? parent->serial : -1, -1, -1});
}

PRESIM_EXPORT int ncclCommFinalize(void* comm) { return checked(comm) != nullptr ? kSuccess : kInvalidArgument; }
PRESIM_EXPORT int ncclCommDestroy(void* comm) { return release(comm); }
PRESIM_EXPORT int ncclCommAbort(void* comm) { return release(comm); }
PRESIM_EXPORT int ncclCommRevoke(void* comm, int) { return checked(comm) != nullptr ? kSuccess : kInvalidArgument; }
PRESIM_EXPORT int ncclCommSuspend(void* comm, int) { return checked(comm) != nullptr ? kSuccess : kInvalidArgument; }
PRESIM_EXPORT int ncclCommResume(void* comm) { return checked(comm) != nullptr ? kSuccess : kInvalidArgument; }

PRESIM_EXPORT int ncclCommGetAsyncError(void* comm, int* error) {
  if (checked(comm) == nullptr || error == nullptr) return kInvalidArgument;
  *error = kSuccess;
  return kSuccess;
}
PRESIM_EXPORT int ncclCommCount(void* comm, int* count) {
  if (checked(comm) == nullptr || count == nullptr) return kInvalidArgument;
  *count = checked(comm)->size;
  return kSuccess;
}
PRESIM_EXPORT int ncclCommCuDevice(void* comm, int* device) {
  if (checked(comm) == nullptr || device == nullptr) return kInvalidArgument;
  *device = checked(comm)->device;
  return kSuccess;
}
PRESIM_EXPORT int ncclCommUserRank(void* comm, int* rank) {
  if (checked(comm) == nullptr || rank == nullptr) return kInvalidArgument;
  *rank = checked(comm)->rank;
  return kSuccess;
}
