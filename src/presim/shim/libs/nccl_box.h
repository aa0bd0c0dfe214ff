// Posts of one of the concurrent ranks: a file with one page of header and then entries. It only grows.
#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>

namespace presim::libs::nccl::mail {

constexpr size_t kPage = 4096;

struct Key {
  uint64_t communicator;
  uint64_t sequence;  // of the communicator's collectives, or of the messages between two of its ranks
  int32_t from, to;   // ranks of the communicator; to = -1: a collective
  bool operator==(const Key& other) const {
    return communicator == other.communicator && sequence == other.sequence && from == other.from && to == other.to;
  }
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = key.communicator * 0x9e3779b97f4a7c15 ^ key.sequence;
    return size_t((hash ^ uint64_t(uint32_t(key.from)) << 32 ^ uint32_t(key.to)) * 0x9e3779b97f4a7c15);
  }
};

// capture/ranks/blocked.py also reads it.
struct Header {
  char magic[8];
  std::atomic<int64_t> pid;
  std::atomic<uint64_t> end;       // bytes of the file that are complete
  std::atomic<uint64_t> stuck_at;  // 1 + the bell's position at which the process was blocked; 0: not blocked
  std::atomic<uint32_t> ended;
};

// One process's file. Only that process writes it.
class Box {
 public:
  // Creates the file of this process. False if it exists: child programs of the script inherit its environment and are
  // not the rank.
  bool create(const std::string& path);
  // Opens another process's file, once; false: that process has not started yet.
  bool open(const std::string& path);
  // On failure, errno has the reason.
  bool append(const Key& key, const std::string& payload);
  // Each entry can be taken only once.
  bool take(const Key& key, std::string* payload);
  // Its process makes no further posts.
  bool over() const;

  Header* header = nullptr;

 private:
  struct Place {
    uint64_t offset, bytes;
  };
  void scan();

  int file_ = -1;
  uint64_t scanned_ = kPage;
  std::unordered_map<Key, Place, KeyHash> entries_;
};

// The first page of a file as a shared mapping; null: it cannot be mapped.
void* map_page(int file);

}  // namespace presim::libs::nccl::mail
