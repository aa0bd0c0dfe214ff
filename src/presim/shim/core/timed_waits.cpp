#include "timed_waits.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "own_time.h"

namespace presim {
namespace {

size_t read_file(const std::string& path, char* text, size_t size) {
  int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  ssize_t got = file >= 0 ? read(file, text, size - 1) : -1;
  if (file >= 0) close(file);
  text[got > 0 ? got : 0] = '\0';
  return got > 0 ? size_t(got) : 0;
}

// Whether a thread waits for a lock without a time limit, so that another one has to proceed first. NCCL's watchdogs
// check collectives periodically for ever and do not count.
bool waits_for_others(const std::string& task) {
  char text[160], name[32];
  if (read_file(task + "/syscall", text, sizeof text) == 0) return access(task.c_str(), F_OK) != 0;  // it has ended
  int call = -1;
  unsigned long long limit = 1;
  bool waits = std::sscanf(text, "%d %*s %*s %*s %llx", &call, &limit) == 2 && call == SYS_futex;  // else "running"
  if (waits && limit == 0) return true;
  return waits && read_file(task + "/comm", name, sizeof name) > 0 && std::strncmp(name, "pt_nccl", 7) == 0;
}

bool has_children(const std::string& task) {
  char text[16];
  return read_file(task + "/children", text, sizeof text) > 0;
}

}  // namespace

bool nothing_else_happens() {
  OwnWork observing;
  DIR* tasks = opendir("/proc/self/task");
  if (tasks == nullptr) return false;
  bool nothing = true;
  std::string self = std::to_string(gettid());
  while (dirent* entry = nothing ? readdir(tasks) : nullptr) {
    if (entry->d_name[0] == '.') continue;
    std::string task = std::string("/proc/self/task/") + entry->d_name;
    nothing = !has_children(task) && (self == entry->d_name || waits_for_others(task));
  }
  closedir(tasks);
  return nothing;
}

void arrived(int64_t moment_ns, bool sleep) {
  int64_t now = live_ns();
  if (now < 0 || moment_ns <= now) return;
  if (main_thread() && sleep) append(Kind::HostWait, 0, 0, moment_ns - now);
  else own_moment_ns() = moment_ns;
}

void slept(int64_t ns) {
  if (main_thread() && ns > 0) append(Kind::HostWait, 0, 0, ns);
}

}  // namespace presim
