#include "pace.h"

#include <sys/mman.h>
#include <x86intrin.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "own_time.h"

namespace presim {
namespace {

// The reference host: the machine on which presim was developed, idle (docs/decisions/host-time.md).
constexpr double kReferenceLost = 0.06e-3, kReferenceWork_ns = 2750;
// Share of a program's time spent on reloading evicted lines, for each ns of additional load latency per ns passed.
constexpr double kInUse = 1.4e3;
constexpr double kLeastLeft = 0.15;  // minimum share of a program's time that is not waiting for memory

constexpr int kChains = 32, kLoads = 16;  // each load is from a page of its own: 2 MiB
constexpr int kPages = kChains * kLoads, kWordsInLine = 16, kLinesInPage = 64;
constexpr uint64_t kLooksAtAChain = 64;  // then the next one, so that no single cache set dominates
constexpr uint64_t kLooksBetweenWork = 100;
constexpr int kOperations = 512;
constexpr double kRemembered_ns = 20e6;
constexpr double kInterrupted_ns = 1000;  // a longer load was interrupted
constexpr double kInterruptedWork_ns = 4 * kReferenceWork_ns;

uint64_t next_random(uint64_t& state) {  // xorshift64
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

double ticks_ns(uint64_t since) { return double(__rdtsc() - since) * ns_per_tick(); }

// Pages are small and far apart, like those of a program with many libraries. TLB misses are part of the load latency.
class Pages {
 public:
  Pages() {
    void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED) throw std::bad_alloc();
    madvise(at, kBytes, MADV_NOHUGEPAGE);
    words_ = static_cast<uint32_t*>(at);
  }
  ~Pages() { munmap(words_, kBytes); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  uint32_t& operator[](uint32_t word) const { return words_[word]; }

 private:
  static constexpr size_t kBytes = size_t(kPages) * kLinesInPage * kWordsInLine * sizeof(uint32_t);
  uint32_t* words_;
};

}  // namespace

struct Pace::Memory {
  Pages words;  // each word holds the index of the next word of its chain
  std::array<uint32_t, kChains> first{};
  std::array<uint8_t, 4096> program{};
  uint64_t sink = 0;

  Memory() {
    uint64_t random = 88172645463325252u;
    std::array<uint32_t, kPages> page;
    for (int i = 0; i < kPages; ++i) page[i] = i;
    for (int i = kPages - 1; i > 0; --i) std::swap(page[i], page[next_random(random) % (i + 1)]);
    for (int chain = 0; chain < kChains; ++chain) {
      std::array<uint32_t, kLoads> places;
      for (int i = 0; i < kLoads; ++i) {
        uint32_t line = page[chain * kLoads + i] * kLinesInPage + next_random(random) % kLinesInPage;
        places[i] = line * kWordsInLine;
      }
      for (int i = 0; i < kLoads; ++i) words[places[i]] = places[(i + 1) % kLoads];
      first[chain] = places[0];
    }
    for (auto& operation : program) operation = uint8_t(next_random(random) >> 11);
  }

  uint32_t follow(uint64_t chain) const {
    uint32_t at = first[chain % kChains];
    for (int i = 0; i < kLoads; ++i) at = words[at];
    return at;
  }

  // An interpreter with eight registers. Its only loads are those of its program.
  uint64_t interpret() const {
    std::array<uint64_t, 8> r{1, 2, 3, 5, 8, 13, 21, 34};
    unsigned at = 0;
    for (int i = 0; i < kOperations; ++i) {
      uint8_t operation = program[at++ % program.size()];
      uint64_t& mine = r[operation >> 4 & 7];
      uint64_t other = r[(operation + i) & 7];
      switch (operation & 7) {
        case 0: mine += other; break;
        case 1: mine ^= other >> 3; break;
        case 2: mine *= 0x9E3779B97F4A7C15u; break;
        case 3: if (mine & 4) at += 3; break;
        case 4: mine = mine << 7 | mine >> 57; break;
        case 5: if (other > mine) ++mine; else mine ^= 0x55; break;
        case 6: if ((mine & 3) == 0) at += 7; break;
        default: mine -= other ^ operation; break;
      }
    }
    return r[0] ^ r[3] ^ r[5];
  }
};

Pace::Pace() = default;
Pace::~Pace() = default;

double Pace::load_ns() {
  _mm_lfence();
  uint64_t begin = __rdtsc();
  _mm_lfence();
  memory_->sink += memory_->follow(looks_ / kLooksAtAChain);
  _mm_lfence();
  return ticks_ns(begin) / kLoads;
}

double Pace::work_ns() {
  memory_->sink += memory_->interpret();  // warms the caches
  uint64_t begin = __rdtsc();
  memory_->sink += memory_->interpret();
  return ticks_ns(begin);
}

void Pace::measure(int64_t program_ns) {
  if (!memory_) memory_ = std::make_unique<Memory>();
  double passed = double(program_ns - std::exchange(last_ns_, program_ns));
  bool first = std::exchange(waited_, false) || looks_ % kLooksAtAChain == 0 || passed > kFound_ns;
  double load = load_ns();
  if (!first && load < kInterrupted_ns) {
    double kept = 1 - passed / kRemembered_ns;
    loads_ns_ = loads_ns_ * kept + load;
    passed_ns_ = passed_ns_ * kept + passed;
  }
  if (looks_++ % kLooksBetweenWork == 0) {
    double work = work_ns();
    if (work < kInterruptedWork_ns) works_ns_ += (work - works_ns_) / std::min(++works_, 16);
  }
  constexpr double kEnough_ns = 2e6;
  double lost = passed_ns_ > kEnough_ns ? loads_ns_ / passed_ns_ : kReferenceLost;
  core_ = works_ > 0 ? works_ns_ / kReferenceWork_ns : 1;
  slowdown_ = core_ * (1 - kInUse * kReferenceLost) / std::max(1 - kInUse * lost, kLeastLeft);
}

}  // namespace presim
