// The memory-mapped file with a Header and Records; recorder.h describes its layout.
#pragma once
#include <string>

#include "recorder.h"

namespace presim {

class LogFile {
 public:
  // Creates `directory`/log.bin. False if it exists (of another process) or cannot be written.
  bool create(const std::string& directory);

  // Makes room for `count` records after the last one. On a full disk: false, and header().full = 1.
  bool reserve(uint64_t count);

  Header& header() { return *static_cast<Header*>(base_); }
  Record* record(uint64_t index) { return reinterpret_cast<Record*>(static_cast<char*>(base_) + sizeof(Header)) + index; }

 private:
  bool grow(size_t wanted);
  bool allocate(size_t bytes);

  int file_ = -1;
  // Fixed for the file's lifetime: the address of a Record never changes.
  void* base_ = nullptr;
  size_t mapped_ = 0;
};

}  // namespace presim
