#include "shared_devices.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <string>

#include "config.h"
#include "device.h"
#include "own_time.h"

namespace presim {
namespace {

constexpr int kMostProcesses = 512;  // of a node

struct Account {  // of one process
  std::atomic<int64_t> pid;  // 0: free
  int64_t rank;
  int64_t bytes[kMaxDevices], peak_bytes[kMaxDevices];
  bool has_context[kMaxDevices];
};

struct Node {
  std::atomic<int64_t> locked_by;  // process id; guards all other fields
  int64_t peak_bytes[kMaxDevices];  // of all processes together
  int32_t peak_processes[kMaxDevices];  // that held them
  Account accounts[kMostProcesses];
};

bool has_ended(int64_t pid) { return kill(pid_t(pid), 0) != 0 && errno == ESRCH; }

int64_t rank() {
  const char* text = std::getenv("PRESIM_RANK");
  return text != nullptr ? std::atoll(text) : 0;
}

Node* map_node() {
  int flags = MAP_SHARED, file = -1;
  if (const char* directory = std::getenv("PRESIM_RANKS_DIR")) {
    std::string path = std::string(directory) + "/node-" + std::to_string(node_of_rank(rank()));
    file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0 && ftruncate(file, sizeof(Node)) != 0) close(file), file = -1;
  }
  if (file < 0) flags = MAP_PRIVATE | MAP_ANONYMOUS;
  void* mapped = mmap(nullptr, sizeof(Node), PROT_READ | PROT_WRITE, flags, file, 0);
  if (file >= 0) close(file);
  if (mapped == MAP_FAILED) std::abort();
  return static_cast<Node*>(mapped);
}

Node& node() {
  static Node* instance = map_node();
  return *instance;
}

std::mutex& threads() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

// Threads of this process take turns before processes do. A process that ended in its turn does not keep it.
class Turn {
 public:
  Turn() : lock_(threads()) {
    int64_t self = getpid();
    for (int64_t holder = 0; !node().locked_by.compare_exchange_weak(holder, self); holder = 0) {
      if (holder != 0 && has_ended(holder)) node().locked_by.compare_exchange_strong(holder, 0);
      sched_yield();
    }
  }
  ~Turn() { node().locked_by = 0; }
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

 private:
  OwnWork accounting_;
  std::lock_guard<std::mutex> lock_;
};

Account* own_account() {
  static Account* own = nullptr;
  int64_t self = getpid();
  if (own != nullptr && own->pid.load() == self) return own;
  for (Account& account : node().accounts) {
    int64_t there = account.pid.load();
    if (there != 0 && !has_ended(there)) continue;
    std::fill(std::begin(account.bytes), std::end(account.bytes), 0);
    std::fill(std::begin(account.peak_bytes), std::end(account.peak_bytes), 0);
    std::fill(std::begin(account.has_context), std::end(account.has_context), false);
    account.rank = rank();
    account.pid = self;
    return own = &account;
  }
  return nullptr;
}

struct Total {
  int64_t bytes = 0;
  int processes = 0;
};

Total total_of(int gpu) {
  Total total;
  for (const Account& account : node().accounts) {
    int64_t pid = account.pid.load();
    if (pid == 0) break;  // accounts are taken in order
    if (account.bytes[gpu] == 0 || has_ended(pid)) continue;
    total.bytes += account.bytes[gpu];
    ++total.processes;
  }
  return total;
}

bool take(int gpu, int64_t bytes) {
  Account* own = own_account();
  if (own == nullptr) return false;
  bool is_new = !own->has_context[gpu];
  if (is_new) bytes += device_config().context_bytes;
  Total total = total_of(gpu);
  if (total.bytes + bytes > device_config().memory_bytes) return false;
  own->has_context[gpu] = true;
  own->bytes[gpu] += bytes;
  own->peak_bytes[gpu] = std::max(own->peak_bytes[gpu], own->bytes[gpu]);
  if (total.bytes + bytes > node().peak_bytes[gpu]) {
    node().peak_bytes[gpu] = total.bytes + bytes;
    node().peak_processes[gpu] = total.processes + (own->bytes[gpu] == bytes);
  }
  return true;
}

}  // namespace

int node_of_rank(int64_t rank) { return int(rank / std::max(device_config().count, 1)); }
int place_in_node(int64_t rank) { return int(rank % std::max(device_config().count, 1)); }

bool take_memory(int gpu, size_t bytes) {
  Turn turn;
  return take(gpu, int64_t(bytes));
}

void return_memory(int gpu, size_t bytes) {
  Turn turn;
  if (Account* own = own_account()) own->bytes[gpu] -= int64_t(bytes);
}

void use_gpu(int gpu) {
  Turn turn;
  Account* own = own_account();
  if (own != nullptr && !own->has_context[gpu]) take(gpu, 0);
}

bool has_context(int gpu) {
  Turn turn;
  Account* own = own_account();
  return own != nullptr && own->has_context[gpu];
}

size_t held_memory(int gpu) {
  Turn turn;
  return size_t(total_of(gpu).bytes);
}

void close_accounts() {
  Turn turn;
  Account* own = own_account();
  for (int gpu = 0; own != nullptr && gpu < kMaxDevices; ++gpu) {
    if (own->peak_bytes[gpu] == 0) continue;
    note("gpu index=" + std::to_string(gpu) + " own=" + std::to_string(own->peak_bytes[gpu]) +
         " all=" + std::to_string(node().peak_bytes[gpu]) + " processes=" + std::to_string(node().peak_processes[gpu]));
    own->bytes[gpu] = 0;
  }
}

}  // namespace presim
