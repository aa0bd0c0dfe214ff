// The mapped file that holds a Header and the Records; see recorder.h for its layout.
#pragma once
#include <string>

#include "recorder.h"

namespace presim {

class LogFile {
 public:
  // Creates `directory`/log.bin. False where it exists already (another process's), or cannot be written.
  bool create(const std::string& directory);

  // Makes room for `count` records after the last one; false and header().full = 1 when the disk is full.
  bool reserve(uint64_t count);

  Header& header() { return *static_cast<Header*>(base_); }
  Record* record(uint64_t index) { return reinterpret_cast<Record*>(static_cast<char*>(base_) + sizeof(Header)) + index; }

 private:
  bool grow(size_t wanted);
  bool allocate(size_t bytes);

  int file_ = -1;
  // One place for the file's whole life: a Record's address never changes.
  void* base_ = nullptr;
  size_t mapped_ = 0;
};

}  // namespace presim
