#include "misuse.h"

#include <dlfcn.h>

#include <atomic>

namespace presim {
namespace {

std::atomic<OnMisuse> listening{nullptr};
std::atomic<BlockCheck> block_check{nullptr};

// Threads that never ran Python are not asked for their line: whoever waits for them may hold Python's lock.
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

void check_block(const void* address, size_t bytes, bool writes) {
  BlockCheck check = block_check.load(std::memory_order_relaxed);
  if (check != nullptr) check(address, bytes, writes);
}

}  // namespace presim
