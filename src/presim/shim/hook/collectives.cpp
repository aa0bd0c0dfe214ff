#include "collectives.h"

#include <c10/util/ThreadLocalDebugInfo.h>
#include <dlfcn.h>
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <atomic>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "groups.h"
#include "recorder.h"

namespace presim::hook {
namespace {

std::atomic<CallSite> call_site{nullptr};
thread_local int32_t called_from = -1;  // the line of this thread's last PyTorch collective

// Threads without Python are not asked: the thread that waits for them may hold the interpreter lock.
bool runs_python() {
  using State = void* (*)();
  static const auto state = reinterpret_cast<State>(dlsym(RTLD_DEFAULT, "PyGILState_GetThisThreadState"));
  return state != nullptr && state() != nullptr;
}

int32_t ask_python() {
  CallSite ask = call_site.load(std::memory_order_relaxed);
  return ask != nullptr && runs_python() ? ask() : -1;
}

bool in_collective() { return c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PARAM_COMMS_INFO) != nullptr; }

// Ranks as "0,3,5", or "first:last+1:stride" if evenly spaced (worlds of thousands of ranks).
std::string describe_ranks(const std::vector<int64_t>& ranks) {
  int64_t stride = ranks.size() > 1 ? ranks[1] - ranks[0] : 1;
  bool even = ranks.size() > 2 && stride > 0;
  for (size_t i = 1; even && i < ranks.size(); ++i) even = ranks[i] - ranks[i - 1] == stride;
  if (even) {
    return std::to_string(ranks.front()) + ':' + std::to_string(ranks.back() + 1) + ':' + std::to_string(stride);
  }
  std::string text;
  for (int64_t rank : ranks) text += (text.empty() ? "" : ",") + std::to_string(rank);
  return text;
}

// Collectives that PyTorch implements with sends and receives, which cannot be recognised from one rank's messages.
bool is_composed(const std::string& call) {
  return call == "all_to_all" || call == "all_to_allv" || call == "gather" || call == "scatter";
}

}  // namespace

int32_t collective_group() {
  static auto* known = new std::unordered_map<std::string, int32_t>;
  static auto* mutex = new std::mutex;
  auto* info = dynamic_cast<torch::ParamCommsDebugInfo*>(
      c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PARAM_COMMS_INFO));
  if (info == nullptr) return -1;
  called_from = ask_python();  // before the lock
  std::string name = info->getProcessGroupName(), call = info->getCollectiveName(), more;
  if (is_composed(call)) more += " call=" + call;
  std::lock_guard<std::mutex> lock(*mutex);
  auto [found, inserted] = known->try_emplace(name + more, -1);
  if (inserted) {
    std::string text = "group name=" + name + " size=" + std::to_string(info->getWorldSize()) + " ranks=" +
                       describe_ranks(group_ranks(*info)) + " ordinal=" +
                       std::to_string(group_ordinal(*info)) + more + " desc=" + info->getProcessGroupDesc();
    found->second = intern(text);
  }
  return found->second;
}

void ask_call_sites(CallSite ask) {
  call_site = ask;
  answer_call_site([] { return in_collective() ? called_from : ask_python(); });
}

}  // namespace presim::hook
