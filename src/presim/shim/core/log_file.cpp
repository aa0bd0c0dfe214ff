#include "log_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <new>

namespace presim {
namespace {

constexpr size_t kAddresses = size_t(64) << 30;   // 1.4 billion records
// The kernel places mappings downwards from the stack and upwards from the program and does not reach this address.
// Addresses therefore need not be reserved before the file grows, which would be most of the mappings with many ranks.
constexpr uintptr_t kFirstPlace = uintptr_t(0x2000) << 32;
constexpr int kPlaces = 64;
constexpr size_t kFirstGrowth = size_t(1) << 20;  // doubles up to kLargestGrowth
constexpr size_t kLargestGrowth = size_t(32) << 20;
constexpr size_t kPage = 4096;

}  // namespace

bool LogFile::create(const std::string& directory) {
  std::string path = directory + "/log.bin";
  // O_EXCL: child programs inherit the environment and must not overwrite the log.
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file_ < 0) return false;
  for (int place = 0; place < kPlaces && mapped_ == 0; ++place) {
    base_ = reinterpret_cast<void*>(kFirstPlace + size_t(place) * kAddresses);
    grow(kPage);
  }
  if (mapped_ == 0) return false;
  Header* header = new (base_) Header{};
  header->version = 1;
  header->record_bytes = sizeof(Record);
  header->pid = uint64_t(getpid());
  std::memcpy(header->magic, "PRESIMLG", sizeof header->magic);
  return true;
}

bool LogFile::reserve(uint64_t count) {
  size_t needed = sizeof(Header) + (header().count.load(std::memory_order_relaxed) + count) * sizeof(Record);
  if (needed <= mapped_ || grow(needed)) return true;
  header().full.store(1, std::memory_order_relaxed);
  return false;
}

// A large step first, then only what is needed if that does not fit.
bool LogFile::grow(size_t needed) {
  size_t step = std::clamp(mapped_, kFirstGrowth, kLargestGrowth);
  size_t least = (needed + kPage - 1) / kPage * kPage;
  return allocate(std::max(mapped_ + step, least)) || allocate(least);
}

// Blocks are allocated before they are mapped: writing to a mapped page without a block on a full disk raises SIGBUS.
bool LogFile::allocate(size_t bytes) {
  rlimit limit{};
  // Beyond the limit the kernel sends SIGXFSZ, which ends the process.
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes > limit.rlim_cur) return false;
  if (bytes > kAddresses || posix_fallocate(file_, 0, off_t(bytes)) != 0) return false;
  void* part = static_cast<char*>(base_) + mapped_;
  constexpr int kHere = MAP_SHARED | MAP_FIXED_NOREPLACE;
  void* mapped = mmap(part, bytes - mapped_, PROT_READ | PROT_WRITE, kHere, file_, off_t(mapped_));
  if (mapped == MAP_FAILED) return false;
  mapped_ = bytes;
  return true;
}

}  // namespace presim
