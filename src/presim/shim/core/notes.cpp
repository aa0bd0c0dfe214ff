// Facts outside the log: $PRESIM_LOG_DIR/notes.tsv. They are few (a new communicator, a choice of a library), so each
// is written at once and survives any end of the process.
#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>

#include "recorder.h"

namespace presim {

void note(std::string_view text) {
  const char* directory = std::getenv("PRESIM_LOG_DIR");
  if (directory == nullptr) return;
  constexpr int kHow = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
  static const int file = open((std::string(directory) + "/notes.tsv").c_str(), kHow, 0644);
  if (file < 0) return;
  std::string line(text);
  line += '\n';
  // One write per line, so that threads do not interleave. On a full disk the note is lost, not the run.
  [[maybe_unused]] ssize_t written = write(file, line.data(), line.size());
}

}  // namespace presim
