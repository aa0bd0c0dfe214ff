// Ranks of the collective that the current thread calls. The framework knows them; NCCL's arguments do not have them.
#pragma once
#include <cstdint>
#include <vector>

#include "recorder.h"

namespace presim {

struct ProcessGroup {
  std::vector<int64_t> ranks;  // global ranks in the order of the group; empty where unknown
  int64_t peer = -1;           // peer of a send or receive, as rank of the group
};

using GroupQuery = bool (*)(ProcessGroup*);

// Descriptor id of the line that calls a collective ("site at=train.py:12"), or -1. May take Python's lock.
using CallSite = int32_t (*)();

// Set by the operator hook.
PRESIM_API void answer_call_site(CallSite query);
PRESIM_API void answer_process_group(GroupQuery query);
// False outside of the framework's collectives.
PRESIM_API bool current_process_group(ProcessGroup* out);
PRESIM_API int32_t current_call_site();

}  // namespace presim
