// ncclGroupStart/End: the calls between them are launched at the end, where sends meet receives.
#include <atomic>
#include <set>
#include <utility>

#include "core/values.h"
#include "libs/nccl_exchange.h"

namespace presim::libs::nccl {
namespace {

struct Message {
  Communicator* comm;
  void* data;
  int64_t bytes;
  int peer;
};

struct Group {
  int depth = 0;
  int64_t serial = 0;
  std::set<std::pair<int32_t, void*>> launches;  // one for each communicator and stream
  std::vector<Message> sends, receives;
  std::vector<Message> broadcasts;  // peer: the root
};

Group& group() {
  static thread_local auto* current = new Group;
  return *current;
}

int64_t next_serial() {
  static std::atomic<int64_t> serial{0};
  return ++serial;
}

// Data that the peer would send if it had ours: our message to ourselves, else our message to it.
const Message* match(const std::vector<Message>& sends, const Message& receive) {
  const Message* found = nullptr;
  for (const Message& send : sends) {
    if (send.comm != receive.comm || send.bytes != receive.bytes) continue;
    if (send.peer == receive.comm->rank) return &send;
    if (found == nullptr || send.peer == receive.peer) found = &send;
  }
  return found;
}

void copy(const Message& to, const void* from, int origin = -1) {
  constexpr int kBytes = 1;  // untyped bytes
  start({Shape::Local, to.comm, from, to.data, to.bytes, kBytes, -1, -1, false, origin});
}

void deliver(const std::vector<Message>& sends, const Message& receive) {
  std::string latest = receive.comm->last_sent;
  if (const Message* send = match(sends, receive)) return copy(receive, send->data);
  bool fits = int64_t(latest.size()) == receive.bytes;
  if (!fits) latest.assign(size_t(receive.bytes), 0);
  copy(receive, latest.data(), fits ? receive.comm->last_sent_origin : uint8_t(kNobody));
}

// PyTorch gathers non-contiguous tensors by broadcasts from every rank in one group. The data of another root are
// those that we send as root. A single broadcast from another rank leaves our data unchanged.
void deliver_broadcasts(const std::vector<Message>& broadcasts) {
  for (const Message& mine : broadcasts) {
    if (mine.peer != mine.comm->rank) continue;
    for (const Message& other : broadcasts)
      if (other.comm == mine.comm && other.bytes == mine.bytes)
        if (!is_present(*mine.comm, other.peer)) copy(other, mine.data);
  }
}

void flush(Group& current) {
  deliver_broadcasts(current.broadcasts);
  current.broadcasts.clear();
  for (const Message& receive : current.receives) deliver(current.sends, receive);
  AsItIs now;
  for (const Message& send : current.sends) {
    send.comm->last_sent.assign(static_cast<char*>(send.data), size_t(send.bytes));
    send.comm->last_sent_origin = origin_of(send.data, size_t(send.bytes));
  }
  current.sends.clear();
  current.receives.clear();
}

bool worth_moving(const void* data, int64_t bytes) { return data != nullptr && bytes > 0 && bytes <= kSmallPayload; }

// Messages between concurrent ranks need no group: they are posted at once and taken when they are read.
void exchange(Shape shape, Communicator* comm, const void* from, void* to, int64_t bytes, int peer) {
  constexpr int kBytes = 1;
  if (bytes > 0 && bytes <= kSmallPayload) {
    start({shape, comm, from, to, bytes, kBytes, -1, peer});
  } else {
    skip_message(*comm, peer, shape == Shape::Send);
  }
}

bool both_there(const Communicator& comm, int peer) { return peer != comm.rank && is_present(comm, peer); }

}  // namespace

bool log_launch(const Communicator& comm, void* stream, int32_t work) {
  Group& current = group();
  if (current.depth == 0) return log_collective(stream, work, next_serial(), false);
  current.launches.emplace(comm.serial, stream);
  return log_collective(stream, work, current.serial, true);
}

bool is_in_group() { return group().depth > 0; }

void group_start() {
  if (group().depth++ == 0) group().serial = next_serial();
}

bool group_end() {
  Group& current = group();
  if (current.depth == 0) return false;
  if (--current.depth > 0) return true;
  append_held(current.launches.size());
  current.launches.clear();
  flush(current);
  return true;
}

void queue_send(Communicator* comm, const void* data, int64_t bytes, int peer) {
  if (both_there(*comm, peer)) exchange(Shape::Send, comm, data, nullptr, bytes, peer);
  if (!worth_moving(data, bytes)) return;
  group().sends.push_back({comm, const_cast<void*>(data), bytes, peer});
  if (group().depth == 0) flush(group());
}

void queue_broadcast(Communicator* comm, void* data, int64_t bytes, int root) {
  if (worth_moving(data, bytes) && group().depth > 0) group().broadcasts.push_back({comm, data, bytes, root});
}

void queue_recv(Communicator* comm, void* data, int64_t bytes, int peer) {
  if (data != nullptr && bytes > kSmallPayload) forget(data, size_t(bytes));
  if (both_there(*comm, peer)) return exchange(Shape::Recv, comm, nullptr, data, bytes, peer);
  if (!worth_moving(data, bytes)) return;
  group().receives.push_back({comm, data, bytes, peer});
  if (group().depth == 0) flush(group());
}

}  // namespace presim::libs::nccl
