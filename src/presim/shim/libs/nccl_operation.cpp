#include "libs/nccl_operation.h"

#include <algorithm>

namespace presim::libs::nccl {
namespace {

bool is_root(const Exchange& call) { return call.root == call.comm->rank; }

bool others_are_there(const Communicator& comm) { return comm.voices.size() > 1; }

std::string_view contribution(const Operation& operation, int rank) {
  const Communicator& comm = *operation.call.comm;
  int voice = operation.call.alone || comm.voice.empty() ? comm.rank : comm.voice[size_t(rank)];
  for (const Source& source : operation.sources) {
    if (source.rank == voice) return source.payload;
  }
  return operation.input;
}

std::string reduced(const Operation& operation, size_t offset) {
  const Exchange& call = operation.call;
  std::vector<Part> parts;
  if (operation.sources.empty()) {
    parts.push_back({operation.input.data() + offset, call.comm->size});
  } else {
    for (const Voice& voice : call.comm->voices) {
      parts.push_back({contribution(operation, voice.rank).data() + offset, voice.ranks});
    }
  }
  return reduce(parts, call.count, call.type, call.op, call.comm->size);
}

// One slice of every rank's contribution.
std::string gathered(const Operation& operation, size_t offset) {
  size_t bytes = slice_bytes(operation.call);
  std::string result;
  result.reserve(bytes * size_t(operation.call.comm->size));
  for (int rank = 0; rank < operation.call.comm->size; ++rank) {
    result.append(contribution(operation, rank).substr(offset, bytes));
  }
  return result;
}

}  // namespace

size_t slice_bytes(const Exchange& call) { return size_t(call.count) * size_t(type_bytes(call.type)); }

size_t slices_in(const Exchange& call) {
  switch (call.shape) {
    case Shape::AllToAll:
    case Shape::ReduceScatter: return size_t(call.comm->size);
    case Shape::Scatter: return is_root(call) ? size_t(call.comm->size) : 0;
    case Shape::Broadcast: return is_root(call) ? 1 : 0;
    case Shape::Recv: return 0;
    default: return 1;
  }
}

size_t slices_out(const Exchange& call) {
  switch (call.shape) {
    case Shape::AllGather:
    case Shape::AllToAll: return size_t(call.comm->size);
    case Shape::Gather: return is_root(call) ? size_t(call.comm->size) : 0;
    case Shape::Reduce: return is_root(call) ? 1 : 0;
    case Shape::Send: return 0;
    default: return 1;
  }
}

size_t payload_bytes(const Exchange& call) {
  bool sliced = call.shape == Shape::AllToAll || call.shape == Shape::ReduceScatter || call.shape == Shape::Scatter;
  return slice_bytes(call) * (sliced ? size_t(call.comm->size) : 1);
}

std::vector<Source> sources_of(const Exchange& call) {
  const Communicator& comm = *call.comm;
  bool from_root = call.shape == Shape::Broadcast || call.shape == Shape::Scatter || call.shape == Shape::Recv;
  bool to_root = call.shape == Shape::Reduce || call.shape == Shape::Gather;
  if (call.alone || call.shape == Shape::Send || call.shape == Shape::Local || (to_root && !is_root(call))) return {};
  if (from_root && is_root(call)) return {};
  std::vector<Source> sources;
  for (const Voice& voice : comm.voices) {
    if (voice.global >= 0 && (!from_root || voice.rank == call.root)) sources.push_back({voice.rank, voice.global});
  }
  return sources;
}

bool is_needed_elsewhere(const Exchange& call) {
  if (call.alone || call.shape == Shape::Local || call.shape == Shape::Recv || !others_are_there(*call.comm)) return false;
  bool to_root = call.shape == Shape::Reduce || call.shape == Shape::Gather;
  bool from_root = call.shape == Shape::Broadcast || call.shape == Shape::Scatter;
  if (from_root) return is_root(call);
  if (to_root || call.shape == Shape::Send) return !is_root(call) && is_present(*call.comm, call.root);
  return true;
}

std::string result_of(const Operation& operation) {
  const Exchange& call = operation.call;
  size_t bytes = slice_bytes(call), own = size_t(call.comm->rank) * bytes;
  switch (call.shape) {
    case Shape::AllReduce:
    case Shape::Reduce: return reduced(operation, 0);
    case Shape::ReduceScatter: return reduced(operation, own);
    case Shape::AllGather:
    case Shape::Gather: return gathered(operation, 0);
    case Shape::AllToAll: return gathered(operation, own);
    case Shape::Scatter: return std::string(contribution(operation, call.root).substr(own, bytes));
    case Shape::Broadcast:
    case Shape::Recv: return std::string(contribution(operation, call.root).substr(0, bytes));
    default: return operation.input;
  }
}

uint8_t joined(uint8_t one, uint8_t other) {
  bool known = one != kNobody && other != kNobody;
  return known ? std::max(one, other) : uint8_t(kNobody);
}

uint8_t origin_of_result(const Operation& operation) {
  Shape shape = operation.call.shape;
  bool only_theirs = !operation.sources.empty() &&
                     (shape == Shape::Broadcast || shape == Shape::Scatter || shape == Shape::Recv);
  uint8_t origin = only_theirs ? uint8_t(kComputed) : operation.origin;
  for (const Source& source : operation.sources) origin = joined(origin, source.origin);
  return origin;
}

}  // namespace presim::libs::nccl
