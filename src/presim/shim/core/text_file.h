// A text file beside the log, to which whole lines are added.
#pragma once
#include <string_view>

namespace presim {

class TextFile {
 public:
  // Opens $PRESIM_LOG_DIR/`name` when this process owns the log; otherwise lines go nowhere.
  explicit TextFile(const char* name);

  // Adds a line in one write, or none of it on a full disk. Returns where it begins, -1 if nowhere.
  long add_line(std::string_view line);

  int descriptor() const { return file_; }

 private:
  int file_ = -1;
  bool full_ = false;
};

bool lines_were_lost();  // whether one was opened where there is no log

}  // namespace presim
