#include "misuse.h"

#include <dlfcn.h>

#include <atomic>
#include <cstdint>

#include "memory.h"

namespace presim {
namespace {

std::atomic<OnMisuse> listening{nullptr};
std::atomic<BlockCheck> block_check{nullptr};

// Threads that never ran Python have no line: a thread that waits for them may hold Python's lock.
bool runs_python() {
  using State = void* (*)();
  static const auto state = reinterpret_cast<State>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  return state != nullptr && state() != nullptr;
}

}  // namespace

void listen_to_misuse(OnMisuse listener) { listening = listener; }

void report_misuse(const std::string& text) {
  OnMisuse listener = listening.load(std::memory_order_relaxed);
  if (listener != nullptr && runs_python()) return listener(text.c_str());
  note("remark Misuse of the GPU: " + text + ".");
}

void set_block_check(BlockCheck check) { block_check = check; }

std::string of_bytes(size_t bytes) { return std::to_string(bytes) + (bytes == 1 ? " byte" : " bytes"); }

std::string in_words(const Access& access) {
  return std::string("a ") + access.what + " of " + of_bytes(access.bytes) + (access.writes ? " writes" : " reads");
}

bool check_access(const Access& access) {
  Range range;
  if (!find_range(access.address, &range)) return report_not_on_device(access), false;
  bool inside = covered(access.address, access.bytes);
  auto begin = reinterpret_cast<uintptr_t>(access.address);
  size_t offset = begin - range.base;
  size_t whole = range.asked > 0 ? range.asked : offset + room(access.address, SIZE_MAX / 2);
  if (!inside || (range.asked > 0 && offset + access.bytes > range.asked)) {
    report_misuse(in_words(access) + " " + of_bytes(offset + access.bytes - whole) + " beyond the end of an allocation of " +
                  of_bytes(whole));
  } else if (BlockCheck check = block_check.load(std::memory_order_relaxed); check != nullptr) {
    check(access);
  }
  return inside;
}

void report_not_on_device(const Access& access) {
  report_misuse(in_words(access) + " memory that is not the device's: it was freed, or never allocated there");
}

}  // namespace presim
