#include "text_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <string>

#include "recorder.h"

namespace presim {

namespace {

std::atomic<bool> lost{false};

}  // namespace

bool lines_were_lost() { return lost; }

TextFile::TextFile(const char* name) {
  if (!log_open()) {
    lost = true;
    return;
  }
  std::string path = std::string(std::getenv("PRESIM_LOG_DIR")) + "/" + name;
  file_ = open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
}

long TextFile::add_line(std::string_view line) {
  if (file_ < 0 || full_) return -1;
  std::string text(line);
  text += '\n';
  off_t begin = lseek(file_, 0, SEEK_END);
  rlimit limit{};
  bool fits = getrlimit(RLIMIT_FSIZE, &limit) == 0 && size_t(begin) + text.size() <= limit.rlim_cur;
  if (fits && write(file_, text.data(), text.size()) == ssize_t(text.size())) return begin;
  // A partial line would shift the ids of all later ones. No line is written after a missing one.
  full_ = true;
  if (ftruncate(file_, begin) != 0) close(file_), file_ = -1;
  return -1;
}

}  // namespace presim
