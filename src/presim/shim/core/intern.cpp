// Descriptor texts and their ids. The id is the line number in work.tsv.
#include <deque>
#include <mutex>
#include <string>
#include <unordered_map>

#include "fork.h"
#include "recorder.h"
#include "text_file.h"

namespace presim {
namespace {

struct Texts {
  std::mutex mutex;
  std::deque<std::string> texts;  // elements never move: the keys of `ids` point into them
  std::unordered_map<std::string_view, int32_t> ids;
  TextFile file{"work.tsv"};
};

Texts& all() {
  static auto* instance = [] {
    auto* made = new Texts;
    hold_across_fork(made->mutex, ForkOrder::Texts);
    return made;
  }();
  return *instance;
}

}  // namespace

int32_t intern(std::string_view text) {
  Texts& known = all();
  std::lock_guard lock(known.mutex);
  auto found = known.ids.find(text);
  if (found != known.ids.end()) return found->second;
  auto id = int32_t(known.texts.size());
  known.texts.emplace_back(text);
  known.ids.emplace(known.texts.back(), id);
  if (log_open()) known.file.add_line(text);  // a forked child must not
  return id;
}

std::string_view interned_text(int32_t id) {
  if (id < 0) return {};
  Texts& known = all();
  std::lock_guard lock(known.mutex);
  return known.texts[size_t(id)];
}

int32_t interned() {
  Texts& known = all();
  std::lock_guard lock(known.mutex);
  return int32_t(known.texts.size());
}

}  // namespace presim
