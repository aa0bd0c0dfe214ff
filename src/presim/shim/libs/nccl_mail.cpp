#include "libs/nccl_mail.h"

#include <fcntl.h>
#include <linux/futex.h>
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
#include <vector>

#include "libs/nccl.h"

namespace presim::libs::nccl::mail {
namespace {

struct Bell {
  std::atomic<uint32_t> moves;
  std::atomic<uint32_t> waiting;
  std::atomic<uint32_t> abandoned;  // 1: nobody waits for calls
};

struct Span {
  int64_t first, end, step;
};

struct Office {
  std::string directory;
  int64_t own = -1;
  pid_t pid = 0;
  Bell* bell = nullptr;
  std::map<int64_t, Box> boxes;  // by rank of the process
  std::map<int64_t, std::vector<Span>> stands_for;
};

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

bool make_own_box(Office& office) { return office.boxes[office.own].create(box_path(office, office.own)); }

Office* make() {
  const char* directory = std::getenv("PRESIM_RANKS_DIR");
  if (directory == nullptr) return nullptr;
  auto* office = new Office;
  office->directory = directory;
  office->own = launched("RANK");
  office->pid = getpid();
  if (read_ranks(*office) && open_bell(*office) && make_own_box(*office)) return office;
  delete office;
  return nullptr;
}

Office*& office() {
  static Office* only = make();
  return only;
}

// At load: ranks that never communicate must be known as started and ended.
__attribute__((constructor)) void check_in() { office(); }

Box* box_of(int64_t rank) {
  auto found = office()->boxes.find(rank);
  if (found == office()->boxes.end()) return nullptr;
  return found->second.open(box_path(*office(), rank)) ? &found->second : nullptr;
}

}  // namespace

bool active() { return office() != nullptr && office()->pid == getpid(); }

int64_t own_rank() { return office()->own; }

int own_place() { return int(std::distance(office()->boxes.begin(), office()->boxes.find(office()->own))); }

const std::string& directory() { return office()->directory; }

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
  if (!office()->boxes[office()->own].append(key, payload)) {
    std::fprintf(stderr, "presim: cannot write to %s (%s); other ranks go on without rank %ld\n",
                 office()->directory.c_str(), std::strerror(errno), long(office()->own));
    return mail::end();
  }
  ring();
}

bool take(int64_t rank, const Key& key, std::string* payload) {
  Box* box = box_of(rank);
  return box != nullptr && box->take(key, payload);
}

bool over(int64_t rank) {
  Box* box = box_of(rank);
  return box != nullptr && box->over();
}

uint32_t bell() { return office()->bell->moves.load(); }

void ring() {
  Bell& bell = *office()->bell;
  bell.moves.fetch_add(1);
  if (bell.waiting.load() > 0) syscall(SYS_futex, &bell.moves, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void abandon_waits() { office()->bell->abandoned = 1; }
bool waits_abandoned() { return office()->bell->abandoned.load() != 0; }

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
    if (box->over()) continue;
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

// In a fork that becomes a rank: the lookups of its parent process are kept (core/rank.cpp).
PRESIM_EXPORT void presim_ranks_begin() {
  using namespace presim::libs::nccl::mail;
  office() = make();
}
