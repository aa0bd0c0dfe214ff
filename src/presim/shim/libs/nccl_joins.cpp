#include "libs/nccl_joins.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

#include "core/host_waits.h"
#include "core/own_time.h"
#include "libs/nccl_join_table.h"
#include "libs/nccl_mail.h"
#include "libs/nccl_pending.h"

namespace presim::libs::nccl {
namespace {

constexpr int kPatience = 10;  // rounds of 100 ms in which no rank can proceed

struct Channel {
  uint64_t key;
  std::vector<int64_t> others;  // global ranks that run and take part
  uint64_t calls = 0;           // of this rank
  joins::Count* count = nullptr;  // where other ranks see them
  std::atomic<uint64_t> joined{0};  // all others have made so many
};

struct Ledger {
  std::mutex mutex;
  std::deque<Channel> channels;
  std::unordered_map<uint64_t, uint32_t> by_key;
  joins::Table* own = nullptr;
  std::map<int64_t, joins::Table*> tables;  // of the other ranks
  std::mutex waiting;  // held by the thread that waits: a rank has one place in the tables of others
};

Ledger& ledger() {
  static auto* instance = new Ledger;
  return *instance;
}

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15;
  return hash ^ hash >> 29;
}

enum Purpose : uint64_t { kCollectives = 1, kMessages = 2, kDevice = 3 };

uint64_t key_of(const Communicator& comm, Purpose purpose, int from = 0, int to = 0) {
  return mixed(mixed(comm.identity, purpose), uint64_t(uint32_t(from)) << 32 | uint32_t(to)) | 1;  // never 0
}

std::string path_of(int64_t rank) { return mail::directory() + "/joins-" + std::to_string(rank); }

joins::Table* own_table(Ledger& all) {
  if (all.own == nullptr) all.own = joins::create_table(path_of(mail::own_rank()));
  return all.own;
}

joins::Table* table_of(int64_t rank) {
  Ledger& all = ledger();
  std::lock_guard lock(all.mutex);
  joins::Table*& table = all.tables[rank];
  if (table == nullptr) table = joins::open_table(path_of(rank));
  return table;
}

uint64_t calls_of(joins::Table* table, uint64_t key) {
  if (table == nullptr) return 0;
  if (table->is_full.load() != 0) return UINT64_MAX;
  joins::Count* count = joins::find_count(*table, key);
  return count != nullptr ? count->calls.load() : 0;
}

bool has_ended(int64_t rank) {
  std::lock_guard guard(pending_lock());
  return mail::over(rank);
}

// Whether this rank has to stop waiting because no rank can proceed; then none waits any more, and the simulation of the
// traces reports the deadlock.
bool must_give_up(uint32_t heard, int* still) {
  std::lock_guard guard(pending_lock());
  *still = mail::nobody_moves(heard) ? *still + 1 : 0;
  if (*still >= kPatience) mail::abandon_waits();
  return mail::waits_abandoned();
}

void set_stuck(uint32_t heard) {
  std::lock_guard guard(pending_lock());
  mail::stuck(heard);
}

void set_unstuck() {
  std::lock_guard guard(pending_lock());
  mail::unstuck();
}

// Waits until another rank has made so many calls; false: it never will.
bool wait_for_rank(int64_t rank, uint64_t key, uint64_t number) {
  for (int still = 0;;) {
    joins::Table* table = table_of(rank);
    if (calls_of(table, key) >= number) return true;
    if (has_ended(rank)) return calls_of(table, key) >= number;
    uint32_t heard = mail::bell();
    if (table == nullptr) {
      set_stuck(heard);
      mail::wait(heard);
    } else {
      int place = mail::own_place();
      uint32_t signal = joins::begin_wait(*table, place, key, number);
      if (calls_of(table, key) < number) {
        set_stuck(heard);
        joins::sleep_on(*table, place, signal);
      }
      joins::end_wait(*table, place);
    }
    if (must_give_up(heard, &still)) return false;
  }
}

// While an instance exists, CPU time of the process is not the program's: its host waits.
class Waiting {
 public:
  Waiting() : turn_(ledger().waiting), start_ns_(process_ns()), start_ticks_(__rdtsc()) { ++own_time_depth(); }
  ~Waiting() {
    set_unstuck();
    --own_time_depth();
    add_own_time(process_ns() - start_ns_);
    own_work_ticks() += __rdtsc() - start_ticks_;
    host_waited();
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

 private:
  static int64_t process_ns() {
    timespec now{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
  }

  std::lock_guard<std::mutex> turn_;
  int64_t start_ns_;
  uint64_t start_ticks_;
};

Channel& channel_of(uint32_t number) {
  std::lock_guard lock(ledger().mutex);
  return ledger().channels[number];  // its address never changes
}

bool all_called(const Channel& channel, uint64_t number) {
  return std::all_of(channel.others.begin(), channel.others.end(),
                     [&](int64_t rank) { return calls_of(table_of(rank), channel.key) >= number; });
}

void wait(const JointCalls& calls) {
  JointCalls open;
  {
    OwnWork looking;
    if (mail::waits_abandoned()) return;
    for (const JointCall& call : calls) {
      Channel& channel = channel_of(call.channel);
      if (all_called(channel, call.number)) channel.joined = call.number;
      else open.push_back(call);
    }
  }
  if (open.empty()) return;
  Waiting waiting;
  for (const JointCall& call : open) {
    Channel& channel = channel_of(call.channel);
    for (int64_t rank : channel.others) {
      wait_for_rank(rank, channel.key, call.number);
      if (mail::waits_abandoned()) return;
    }
    channel.joined = call.number;
  }
}

bool is_over(JointCall call) { return channel_of(call.channel).joined.load() >= call.number; }

constexpr HostWaits kWaits{wait, is_over};

std::vector<int64_t> others_of(const Communicator& comm, const Join& call) {
  if (call.route == Route::Collective) {
    std::vector<int64_t> others;
    for (const Voice& voice : comm.voices) {
      if (voice.global >= 0) others.push_back(voice.global);
    }
    return others;
  }
  bool runs = call.peer != comm.rank && is_present(comm, call.peer) && !comm.members.empty();
  return runs ? std::vector{comm.members[size_t(call.peer)]} : std::vector<int64_t>();
}

uint64_t key_of(const Join& call) {
  const Communicator& comm = *call.comm;
  if (call.route == Route::Collective) return key_of(comm, kCollectives);
  return call.route == Route::Send ? key_of(comm, kMessages, comm.rank, call.peer)
                                   : key_of(comm, kMessages, call.peer, comm.rank);
}

// Counts a call. False: no other rank takes part.
bool count(const Join& call, JointCall* counted) {
  OwnTime counting;
  if (!mail::active()) return false;
  Ledger& all = ledger();
  std::lock_guard lock(all.mutex);
  uint64_t key = key_of(call);
  auto [place, is_new] = all.by_key.try_emplace(key, uint32_t(all.channels.size()));
  if (is_new) {
    all.channels.emplace_back();
    all.channels.back().key = key;
    all.channels.back().others = others_of(*call.comm, call);
    if (own_table(all) == nullptr) return false;
    if (!all.channels.back().others.empty()) answer_host_waits(&kWaits);
  }
  Channel& channel = all.channels[place->second];
  if (channel.others.empty()) return false;
  ++channel.calls;
  if (channel.count == nullptr) channel.count = joins::add_count(*all.own, key);
  if (channel.count != nullptr) {
    channel.count->calls.store(channel.calls);
    if (joins::wake(*all.own, key, channel.calls)) mail::ring();
  }
  *counted = {place->second, channel.calls};
  return true;
}

}  // namespace

void join(const Join& call, void* stream) {
  JointCall counted;
  if (count(call, &counted)) add_joint_call(stream, counted);
}

void join_at_replay(const Join& call) {
  JointCall counted;
  if (count(call, &counted)) add_replayed_call(counted);
}

void announce_gpu(const Communicator& comm) {
  if (!mail::active()) return;
  OwnWork announcing;
  Ledger& all = ledger();
  std::lock_guard lock(all.mutex);
  uint64_t key = key_of(comm, kDevice);
  joins::Table* own = own_table(all);
  joins::Count* count = own != nullptr ? joins::add_count(*own, key) : nullptr;
  if (count == nullptr) return;
  count->calls.store(uint64_t(comm.gpu) + 1);
  if (joins::wake(*own, key, UINT64_MAX)) mail::ring();
}

int gpu_of_rank(const Communicator& comm, int64_t global) {
  uint64_t key = key_of(comm, kDevice);
  uint64_t announced = calls_of(table_of(global), key);
  if (announced == 0) {
    Waiting waiting;
    if (!mail::waits_abandoned()) wait_for_rank(global, key, 1);
    announced = calls_of(table_of(global), key);
  }
  return announced == 0 || announced == UINT64_MAX ? kUnknownGpu : int(announced) - 1;
}

}  // namespace presim::libs::nccl
