// A text file beside the log; whole lines are appended.
#pragma once
#include <string_view>

namespace presim {

class TextFile {
 public:
  // Opens $PRESIM_LOG_DIR/`name` if this process owns the log. Otherwise lines are discarded.
  explicit TextFile(const char* name);

  // Appends a line in one write, or nothing on a full disk. Returns its offset; -1 if it was not written.
  long add_line(std::string_view line);

  int descriptor() const { return file_; }

 private:
  int file_ = -1;
  bool full_ = false;
};

bool lines_were_lost();  // whether a file was opened without a log

}  // namespace presim
