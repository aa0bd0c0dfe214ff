// Members of a communicator and their representatives.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <mutex>

#include "core/process_group.h"
#include "libs/nccl.h"
#include "libs/nccl_mail.h"

namespace presim::libs::nccl {
namespace {

std::vector<int64_t> up_to(int64_t size) {
  std::vector<int64_t> ranks(size_t(std::max<int64_t>(size, 0)));
  for (size_t i = 0; i < ranks.size(); ++i) ranks[i] = int64_t(i);
  return ranks;
}

// For unbatched sends and receives, PyTorch uses a communicator of the two ranks, lower rank first.
std::vector<int64_t> pair_of(const ProcessGroup& group, int64_t own) {
  auto self = std::find(group.ranks.begin(), group.ranks.end(), own);
  bool known = group.peer >= 0 && group.peer < int64_t(group.ranks.size()) && self != group.ranks.end();
  if (!known) return {};
  int64_t peer = group.ranks[size_t(group.peer)];
  return self - group.ranks.begin() <= group.peer ? std::vector{own, peer} : std::vector{peer, own};
}

std::vector<int64_t> find_members(const Communicator& comm) {
  int64_t world = launched("WORLD_SIZE");
  ProcessGroup group;
  if (current_process_group(&group) && !group.ranks.empty()) {
    if (comm.size == -1 || comm.size == int32_t(group.ranks.size())) return group.ranks;
    if (comm.size == 2) return pair_of(group, launched("RANK"));
  }
  return comm.size == world ? up_to(world) : std::vector<int64_t>();
}

std::string listed(const std::vector<int64_t>& ranks) {
  int64_t step = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  bool even = ranks.size() > 2 && step > 0;
  for (size_t i = 1; even && i < ranks.size(); ++i) even = ranks[i] - ranks[i - 1] == step;
  if (even) {
    return std::to_string(ranks.front()) + ':' + std::to_string(ranks.back() + 1) + ':' + std::to_string(step);
  }
  std::string text;
  for (int64_t rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

void find_voices(Communicator& comm) {
  comm.voices = {{comm.rank, -1, comm.size}};
  if (!mail::active() || comm.members.empty()) return;
  std::map<int64_t, int32_t> places;
  for (size_t i = 0; i < comm.members.size(); ++i) places[comm.members[i]] = int32_t(i);
  std::map<int32_t, int64_t> counts;
  comm.voice.resize(comm.members.size());
  for (size_t i = 0; i < comm.members.size(); ++i) {
    auto place = places.find(mail::voice_of(comm.members[i]));
    comm.voice[i] = place != places.end() && int32_t(i) != comm.rank ? place->second : comm.rank;
    ++counts[comm.voice[i]];
  }
  comm.voices[0].ranks = counts[comm.rank];
  for (auto [rank, ranks] : counts) {
    if (rank != comm.rank) comm.voices.push_back({rank, comm.members[size_t(rank)], ranks});
  }
}

}  // namespace

int64_t launched(const char* name) {
  const char* text = std::getenv((std::string("PRESIM_") + name).c_str());
  if (text == nullptr) text = std::getenv(name);
  return text != nullptr ? std::atoll(text) : -1;
}

// PyTorch's record of a communicator's creation does not have the peer of a pair.
bool can_learn_members(const Communicator& comm) {
  ProcessGroup group;
  bool has_group = current_process_group(&group) && !group.ranks.empty();
  return has_group ? comm.size == int32_t(group.ranks.size()) : comm.size == launched("WORLD_SIZE");
}

void learn_members(Communicator& comm) {
  static auto* lock = new std::mutex;
  std::lock_guard guard(*lock);
  if (comm.known) return;
  comm.known = true;
  if (comm.members.empty()) comm.members = find_members(comm);
  bool fits = comm.rank >= 0 && comm.rank < int32_t(comm.members.size());
  if (!fits || (comm.size != -1 && comm.size != int32_t(comm.members.size()))) comm.members.clear();
  if (!comm.members.empty()) {
    if (comm.size == -1) comm.size = int32_t(comm.members.size());
    presim::note("members serial=" + std::to_string(comm.serial) + " ranks=" + listed(comm.members));
  }
  find_voices(comm);
}

bool is_present(const Communicator& comm, int rank) {
  return rank == comm.rank || (size_t(rank) < comm.voice.size() && comm.voice[size_t(rank)] == rank);
}

}  // namespace presim::libs::nccl

// For programs that create communicators without a framework: its global ranks, set before its first use.
PRESIM_EXPORT int presim_nccl_members(void* comm, const int64_t* ranks, int count) {
  using namespace presim::libs::nccl;
  Communicator* found = checked(comm);
  if (found == nullptr || ranks == nullptr || count < 1) return kInvalidArgument;
  found->members.assign(ranks, ranks + count);
  found->known = false;
  return kSuccess;
}
