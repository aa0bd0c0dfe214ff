#include "libs/nccl_box.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace presim::libs::nccl::mail {
namespace {

constexpr char kMagic[8] = {'P', 'R', 'E', 'S', 'I', 'M', 'R', 'K'};

struct Entry {
  Key key;
  uint64_t bytes;  // size of the payload that follows
};

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

}  // namespace

void* map_page(int file) {
  void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return page == MAP_FAILED ? nullptr : page;
}

bool Box::create(const std::string& path) {
  file_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file_ < 0 || ftruncate(file_, kPage) != 0) return false;
  header = static_cast<Header*>(map_page(file_));
  if (header == nullptr) return false;
  header->pid = getpid();
  header->end = kPage;
  std::memcpy(header->magic, kMagic, sizeof kMagic);
  return true;
}

bool Box::open(const std::string& path) {
  if (header != nullptr) return true;
  int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return false;
  auto* page = lseek(file, 0, SEEK_END) >= off_t(kPage) ? static_cast<Header*>(map_page(file)) : nullptr;
  if (page == nullptr || page->end.load(std::memory_order_acquire) < kPage) {
    if (page != nullptr) munmap(page, kPage);
    close(file);
    return false;
  }
  file_ = file;
  header = page;
  return true;
}

bool Box::append(const Key& key, const std::string& payload) {
  Entry entry{key, payload.size()};
  uint64_t end = header->end.load(std::memory_order_relaxed);
  if (!write_at(file_, &entry, sizeof entry, end) ||
      !write_at(file_, payload.data(), payload.size(), end + sizeof entry)) {
    return false;
  }
  header->end.store(end + sizeof entry + payload.size(), std::memory_order_release);
  return true;
}

bool Box::take(const Key& key, std::string* payload) {
  auto found = entries_.find(key);
  if (found == entries_.end()) {
    scan();
    found = entries_.find(key);
    if (found == entries_.end()) return false;
  }
  payload->resize(found->second.bytes);
  bool whole = read_at(file_, payload->data(), payload->size(), found->second.offset);
  entries_.erase(found);
  return whole;
}

void Box::scan() {
  uint64_t end = header->end.load(std::memory_order_acquire);
  Entry entry;
  while (scanned_ < end && read_at(file_, &entry, sizeof entry, scanned_)) {
    entries_[entry.key] = {scanned_ + sizeof entry, entry.bytes};
    scanned_ += sizeof entry + entry.bytes;
  }
}

bool Box::over() const {
  return header->ended.load(std::memory_order_acquire) != 0 ||
         (kill(pid_t(header->pid.load()), 0) != 0 && errno == ESRCH);
}

}  // namespace presim::libs::nccl::mail
