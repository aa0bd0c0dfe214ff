#include "libs/nccl_mail.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <unordered_map>
#include <vector>

#include "libs/nccl.h"

namespace presim::libs::nccl::mail {
namespace {

constexpr size_t kPage = 4096;
constexpr char kMagic[8] = {'P', 'R', 'E', 'S', 'I', 'M', 'R', 'K'};

struct Bell {
  std::atomic<uint32_t> moves;
  std::atomic<uint32_t> waiting;
};

struct Header {
  char magic[8];
  std::atomic<int64_t> pid;
  std::atomic<uint64_t> end;       // bytes of the file that are written
  std::atomic<uint64_t> stuck_at;  // 1 + the bell's position at which the process could not go on; 0: it can
  std::atomic<uint32_t> ended;
};

struct Entry {
  Key key;
  uint64_t bytes;  // of the payload, which follows
};

struct KeyHash {
  size_t operator()(const Key& key) const {
    uint64_t hash = key.communicator * 0x9e3779b97f4a7c15 ^ key.sequence;
    return size_t((hash ^ uint64_t(uint32_t(key.from)) << 32 ^ uint32_t(key.to)) * 0x9e3779b97f4a7c15);
  }
};

struct Place {
  uint64_t offset, bytes;
};

// One process's file, as it is read or, of ourselves, written.
struct Box {
  int file = -1;
  Header* header = nullptr;
  uint64_t scanned = kPage;
  std::unordered_map<Key, Place, KeyHash> entries;
};

struct Span {
  int64_t first, end, step;
};

struct Office {
  std::string directory;
  int64_t own = -1;
  pid_t pid = 0;
  Bell* bell = nullptr;
  std::map<int64_t, Box> boxes;             // by rank of the process
  std::map<int64_t, std::vector<Span>> stands_for;
};

void* map_page(int file) {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return page == MAP_FAILED ? nullptr : page;
}

std::vector<Span> parse_spans(const std::string& text) {
  std::vector<Span> spans;
  std::stringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    long long first = 0, end = 0, step = 1;
    int found = std::sscanf(part.c_str(), "%lld:%lld:%lld", &first, &end, &step);
    if (found == 1) end = first + 1;
    if (found >= 1 && step > 0) spans.push_back({first, end, step});
  }
  return spans;
}

bool read_ranks(Office& office) {
  std::ifstream file(office.directory + "/ranks");
  for (std::string line; std::getline(file, line);) {
    std::stringstream words(line);
    int64_t rank = -1;
    std::string others;
    if (!(words >> rank)) continue;
    words >> others;
    office.boxes[rank];
    office.stands_for[rank] = parse_spans(others);
  }
  return office.boxes.count(office.own) > 0 && office.boxes.size() > 1;
}

std::string box_path(const Office& office, int64_t rank) { return office.directory + "/rank-" + std::to_string(rank); }

bool open_bell(Office& office) {
  int file = open((office.directory + "/bell").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (file < 0 || ftruncate(file, kPage) != 0) return false;
  office.bell = static_cast<Bell*>(map_page(file));
  close(file);
  return office.bell != nullptr;
}

// O_EXCL: programs that the script starts inherit its environment, and are not the rank.
bool open_own_box(Office& office) {
  Box& box = office.boxes[office.own];
  box.file = open(box_path(office, office.own).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (box.file < 0 || ftruncate(box.file, kPage) != 0) return false;
  box.header = static_cast<Header*>(map_page(box.file));
  if (box.header == nullptr) return false;
  box.header->pid = getpid();
  box.header->end = kPage;
  std::memcpy(box.header->magic, kMagic, sizeof kMagic);
  return true;
}

Office* make() {
  const char* directory = std::getenv("PRESIM_RANKS_DIR");
  if (directory == nullptr) return nullptr;
  auto* office = new Office;
  office->directory = directory;
  office->own = launched("RANK");
  office->pid = getpid();
  if (read_ranks(*office) && open_bell(*office) && open_own_box(*office)) return office;
  delete office;
  return nullptr;
}

Office*& office() {
  static Office* only = make();
  return only;
}

// At load: a rank that never communicates must be known to have started, and to have ended.
__attribute__((constructor)) void check_in() { office(); }

Box* box_of(int64_t rank) {
  auto found = office()->boxes.find(rank);
  if (found == office()->boxes.end()) return nullptr;
  Box& box = found->second;
  if (box.header != nullptr) return &box;
  int file = open(box_path(*office(), rank).c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;  // not started yet
  auto* header = lseek(file, 0, SEEK_END) >= off_t(kPage) ? static_cast<Header*>(map_page(file)) : nullptr;
  if (header == nullptr || header->end.load(std::memory_order_acquire) < kPage) {
    if (header != nullptr) munmap(header, kPage);
    close(file);
    return nullptr;
  }
  box.file = file;
  box.header = header;
  return &box;
}

bool read_at(int file, void* to, size_t bytes, uint64_t offset) {
  auto* place = static_cast<char*>(to);
  while (bytes > 0) {
    ssize_t got = pread(file, place, bytes, off_t(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    place += got, bytes -= size_t(got), offset += uint64_t(got);
  }
  return true;
}

bool write_at(int file, const void* from, size_t bytes, uint64_t offset) {
  auto* place = static_cast<const char*>(from);
  while (bytes > 0) {
    ssize_t put = pwrite(file, place, bytes, off_t(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    place += put, bytes -= size_t(put), offset += uint64_t(put);
  }
  return true;
}

void scan(Box& box) {
  uint64_t end = box.header->end.load(std::memory_order_acquire);
  Entry entry;
  while (box.scanned < end && read_at(box.file, &entry, sizeof entry, box.scanned)) {
    box.entries[entry.key] = {box.scanned + sizeof entry, entry.bytes};
    box.scanned += sizeof entry + entry.bytes;
  }
}

void ring() {
  Bell& bell = *office()->bell;
  bell.moves.fetch_add(1);
  if (bell.waiting.load() > 0) syscall(SYS_futex, &bell.moves, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

bool is_over(const Box& box) {
  return box.header->ended.load(std::memory_order_acquire) != 0 ||
         (kill(pid_t(box.header->pid.load()), 0) != 0 && errno == ESRCH);
}

}  // namespace

bool active() { return office() != nullptr && office()->pid == getpid(); }

int64_t own_rank() { return office()->own; }

int64_t voice_of(int64_t rank) {
  if (office()->boxes.count(rank) > 0) return rank;
  for (const auto& [voice, spans] : office()->stands_for) {
    for (const Span& span : spans) {
      if (rank >= span.first && rank < span.end && (rank - span.first) % span.step == 0) return voice;
    }
  }
  return -1;
}

void post(const Key& key, const std::string& payload) {
  Box& box = office()->boxes[office()->own];
  Entry entry{key, payload.size()};
  uint64_t end = box.header->end.load(std::memory_order_relaxed);
  if (!write_at(box.file, &entry, sizeof entry, end) ||
      !write_at(box.file, payload.data(), payload.size(), end + sizeof entry)) {
    std::fprintf(stderr, "presim: cannot write to %s (%s); other ranks go on without rank %ld\n",
                 office()->directory.c_str(), std::strerror(errno), long(office()->own));
    return mail::end();
  }
  box.header->end.store(end + sizeof entry + payload.size(), std::memory_order_release);
  ring();
}

bool take(int64_t rank, const Key& key, std::string* payload) {
  Box* box = box_of(rank);
  if (box == nullptr) return false;
  auto found = box->entries.find(key);
  if (found == box->entries.end()) {
    scan(*box);
    found = box->entries.find(key);
    if (found == box->entries.end()) return false;
  }
  payload->resize(found->second.bytes);
  bool whole = read_at(box->file, payload->data(), payload->size(), found->second.offset);
  box->entries.erase(found);
  return whole;
}

bool over(int64_t rank) {
  Box* box = box_of(rank);
  return box != nullptr && is_over(*box);
}

uint32_t bell() { return office()->bell->moves.load(); }

void wait(uint32_t heard) {
  Bell& bell = *office()->bell;
  timespec most{0, 50'000'000};
  bell.waiting.fetch_add(1);
  syscall(SYS_futex, &bell.moves, FUTEX_WAIT, heard, &most, nullptr, 0);
  bell.waiting.fetch_sub(1);
}

void stuck(uint32_t heard) { office()->boxes[office()->own].header->stuck_at.store(uint64_t(heard) + 1); }
void unstuck() { office()->boxes[office()->own].header->stuck_at.store(0); }

bool nobody_moves(uint32_t heard) {
  bool first = true;
  for (auto& [rank, unused] : office()->boxes) {
    Box* box = box_of(rank);
    if (box == nullptr) return false;
    if (is_over(*box)) continue;
    if (box->header->stuck_at.load() != uint64_t(heard) + 1) return false;
    if (first && rank != office()->own) return false;
    first = false;
  }
  return bell() == heard;
}

void end() {
  office()->boxes[office()->own].header->ended.store(1, std::memory_order_release);
  ring();
}

}  // namespace presim::libs::nccl::mail

// In a fork that becomes a rank: it has found what the process has that it was forked from (core/rank.cpp).
PRESIM_EXPORT void presim_ranks_begin() {
  using namespace presim::libs::nccl::mail;
  office() = make();
}
