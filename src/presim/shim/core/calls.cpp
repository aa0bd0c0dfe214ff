// Counts calls of functions without semantics. A line has a count of fixed width, which is updated in place through a
// mapping, so that calls.tsv is correct however the process ends.
#include <sys/mman.h>

#include <mutex>
#include <string>
#include <unordered_map>

#include "fork.h"
#include "recorder.h"
#include "text_file.h"

namespace presim {
namespace {

constexpr int kDigits = 12;
constexpr size_t kLargestFile = 1 << 20;  // more names than all libraries export

struct Count {
  uint64_t calls = 0;
  char* digits = nullptr;
};

struct Calls {
  std::mutex mutex;
  std::unordered_map<std::string, Count> counts;
  TextFile file{"calls.tsv"};
  char* mapping = nullptr;
};

Calls& all() {
  static auto* instance = [] {
    auto* made = new Calls;
    hold_across_fork(made->mutex, ForkOrder::Calls);
    return made;
  }();
  return *instance;
}

char* digits_of_new_line(Calls& calls, const char* name) {
  std::string line = std::string(name) + "\t";
  size_t prefix = line.size();
  long begin = calls.file.add_line(line.append(kDigits, '0'));
  if (begin < 0 || size_t(begin) + line.size() > kLargestFile) return nullptr;
  if (calls.mapping == nullptr) {
    void* mapped = mmap(nullptr, kLargestFile, PROT_READ | PROT_WRITE, MAP_SHARED, calls.file.descriptor(), 0);
    if (mapped == MAP_FAILED) return nullptr;
    calls.mapping = static_cast<char*>(mapped);
  }
  return calls.mapping + begin + prefix;
}

}  // namespace

void unmodelled(const char* name) {
  if (!log_open()) return;
  Calls& calls = all();
  std::lock_guard lock(calls.mutex);
  auto [found, added] = calls.counts.try_emplace(name);
  Count& count = found->second;
  if (added) count.digits = digits_of_new_line(calls, name);
  ++count.calls;
  if (count.digits == nullptr) return;
  uint64_t rest = count.calls;
  for (int i = kDigits - 1; rest > 0 && i >= 0; --i, rest /= 10) count.digits[i] = char('0' + rest % 10);
}

}  // namespace presim
