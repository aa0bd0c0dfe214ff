#include "process_group.h"

#include <atomic>

namespace presim {
namespace {

std::atomic<GroupQuery> answer{nullptr};
std::atomic<CallSite> site{nullptr};

}  // namespace

void answer_process_group(GroupQuery query) { answer.store(query, std::memory_order_release); }

bool current_process_group(ProcessGroup* out) {
  GroupQuery query = answer.load(std::memory_order_acquire);
  return query != nullptr && query(out);
}

void answer_call_site(CallSite query) { site.store(query, std::memory_order_release); }

int32_t current_call_site() {
  CallSite query = site.load(std::memory_order_acquire);
  return query != nullptr ? query() : -1;
}

}  // namespace presim
