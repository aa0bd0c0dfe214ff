// ncclGroupStart/End: the calls between them are one launch, and sends meet receives at its end.
#include <atomic>

#include "core/values.h"
#include "libs/nccl.h"

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

// What the peer would have sent us, were its data ours: what we send to ourselves, else what we send to it.
const Message* match(const std::vector<Message>& sends, const Message& receive) {
  const Message* found = nullptr;
  for (const Message& send : sends) {
    if (send.comm != receive.comm || send.bytes != receive.bytes) continue;
    if (send.peer == receive.comm->rank) return &send;
    if (found == nullptr || send.peer == receive.peer) found = &send;
  }
  return found;
}

void deliver(const std::vector<Message>& sends, const Message& receive) {
  if (const Message* send = match(sends, receive)) {
    received(receive.data, receive.bytes, send->data, send->bytes, true);
    std::memmove(receive.data, send->data, size_t(receive.bytes));
  } else if (int64_t(receive.comm->last_sent.size()) == receive.bytes) {
    std::memcpy(receive.data, receive.comm->last_sent.data(), size_t(receive.bytes));
    presim::know(receive.data, size_t(receive.bytes), receive.comm->last_sent_origin);
  } else {
    received(receive.data, receive.bytes, nullptr, 0, false);
    std::memset(receive.data, 0, size_t(receive.bytes));
  }
}

// Broadcasts from every rank, in one group, are how PyTorch gathers tensors that lie apart: what another root sends is
// what we send as root. A broadcast from another rank alone leaves our data as it is.
void deliver_broadcasts(const std::vector<Message>& broadcasts) {
  for (const Message& mine : broadcasts) {
    if (mine.peer != mine.comm->rank) continue;
    for (const Message& other : broadcasts) {
      if (other.comm != mine.comm || other.bytes != mine.bytes || other.peer == mine.peer) continue;
      received(other.data, other.bytes, mine.data, mine.bytes, true);
      std::memmove(other.data, mine.data, size_t(mine.bytes));
    }
  }
}

void flush(Group& current) {
  deliver_broadcasts(current.broadcasts);
  current.broadcasts.clear();
  for (const Message& receive : current.receives) deliver(current.sends, receive);
  for (const Message& send : current.sends) {
    send.comm->last_sent.assign(static_cast<char*>(send.data), size_t(send.bytes));
    send.comm->last_sent_origin = presim::origin_of(send.data, size_t(send.bytes));
  }
  current.sends.clear();
  current.receives.clear();
}

bool worth_moving(const void* data, int64_t bytes) { return data != nullptr && bytes > 0 && bytes <= kSmallPayload; }

}  // namespace

int64_t launch_group() { return group().depth > 0 ? group().serial : next_serial(); }

void group_start() {
  if (group().depth++ == 0) group().serial = next_serial();
}

bool group_end() {
  Group& current = group();
  if (current.depth == 0) return false;
  if (--current.depth == 0) flush(current);
  return true;
}

void queue_send(Communicator* comm, const void* data, int64_t bytes, int peer) {
  if (!worth_moving(data, bytes)) return;
  group().sends.push_back({comm, const_cast<void*>(data), bytes, peer});
  if (group().depth == 0) flush(group());
}

void queue_broadcast(Communicator* comm, void* data, int64_t bytes, int root) {
  if (worth_moving(data, bytes) && group().depth > 0) group().broadcasts.push_back({comm, data, bytes, root});
}

void queue_recv(Communicator* comm, void* data, int64_t bytes, int peer) {
  if (data != nullptr && bytes > kSmallPayload) presim::forget(data, size_t(bytes));
  if (!worth_moving(data, bytes)) return;
  group().receives.push_back({comm, data, bytes, peer});
  if (group().depth == 0) flush(group());
}

}  // namespace presim::libs::nccl
