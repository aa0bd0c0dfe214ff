// Two ranks of a communicator on one GPU: NCCL refuses to create it (init.cc, "Duplicate GPU detected").
#include <cstdio>
#include <mutex>

#include "core/attributes.h"
#include "core/shared_devices.h"
#include "libs/nccl_joins.h"
#include "libs/nccl_mail.h"

namespace presim::libs::nccl {
namespace {

std::string& error_text() {
  static auto* text = new std::string;
  return *text;
}

// The rank whose GPU tells that of a member: itself, or for a rank that does not run one that has the same place in its
// node, since programs choose a GPU by that; -1: none.
int64_t telling_rank(const Communicator& comm, int64_t member) {
  if (mail::voice_of(member) == member) return member;
  for (int64_t other : comm.members) {
    if (mail::voice_of(other) == other && place_in_node(other) == place_in_node(member)) return other;
  }
  return -1;
}

int gpu_of_member(const Communicator& comm, int64_t member) {
  int64_t telling = telling_rank(comm, member);
  if (telling < 0) return kUnknownGpu;
  return telling == mail::own_rank() ? comm.gpu : gpu_of_rank(comm, telling);
}

int refuse(const Communicator& comm, size_t other) {
  char text[120];
  // As NCCL prints the bus id of 0000:1b:00.0.
  std::snprintf(text, sizeof text, "Duplicate GPU detected : rank %d and rank %d both on CUDA device %x", comm.rank,
                int(other), unsigned(pci_bus(comm.gpu)) << 12);
  error_text() = text;
  return kInvalidUsage;
}

}  // namespace

const std::string& last_error() { return error_text(); }

int check_devices(Communicator& comm) {
  if (comm.is_checked || !mail::active()) return kSuccess;
  comm.is_checked = true;
  int64_t own = mail::own_rank();
  for (const Voice& voice : comm.voices) {
    if (voice.global >= 0) gpu_of_rank(comm, voice.global);  // all arrive before any goes on
  }
  for (size_t i = 0; i < comm.members.size(); ++i) {
    int64_t member = comm.members[i];
    if (member == own || node_of_rank(member) != node_of_rank(own)) continue;
    if (gpu_of_member(comm, member) == comm.gpu) return refuse(comm, i);
  }
  return kSuccess;
}

}  // namespace presim::libs::nccl
