#include "simulator.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>

namespace presim {
namespace {

constexpr int kUnopened = -1, kNone = -2;
std::atomic<int> connection{kUnopened};

// Uses the directory's descriptor, because the name of a socket is limited to 107 characters.
int connect_to_launcher() {
  const char* directory = std::getenv("PRESIM_LOG_DIR");
  if (directory == nullptr || !log_open()) return kNone;
  int folder = open(directory, O_PATH | O_CLOEXEC);
  if (folder < 0) return kNone;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::string path = "/proc/self/fd/" + std::to_string(folder) + "/clock";
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  int made = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (made >= 0 && connect(made, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) close(made), made = -1;
  close(folder);
  return made >= 0 ? made : kNone;
}

std::mutex& connecting() {
  static auto* mutex = new std::mutex;
  return *mutex;
}

}  // namespace

bool simulator_answers() {
  int known = connection.load(std::memory_order_acquire);
  if (known == kUnopened) {
    std::lock_guard lock(connecting());
    if (connection.load() == kUnopened) connection = connect_to_launcher();
    known = connection.load();
  }
  return known >= 0 && log_open();  // a forked child has no log
}

Answer ask_simulator(const Question& question) {
  Answer answer{};
  answer.status = kNobody;
  if (!simulator_answers()) return answer;
  ssize_t done;
  do done = send(connection, &question, sizeof question, MSG_NOSIGNAL);
  while (done < 0 && errno == EINTR);
  if (done == ssize_t(sizeof question)) {
    do done = recv(connection, &answer, sizeof answer, 0);
    while (done < 0 && errno == EINTR);
    if (done == ssize_t(sizeof answer)) return answer;
  }
  connection = kNone;
  answer = {};
  answer.status = kNobody;
  return answer;
}

}  // namespace presim
