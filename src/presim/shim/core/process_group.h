// Which ranks take part in the collective that the current thread calls: the framework knows, NCCL's arguments do not say.
#pragma once
#include <cstdint>
#include <vector>

#include "recorder.h"

namespace presim {

struct ProcessGroup {
  std::vector<int64_t> ranks;  // global ranks in the order of the group; empty where unknown
  int64_t peer = -1;           // of a send or receive, as rank of the group
};

using GroupQuery = bool (*)(ProcessGroup*);

// The operator hook answers, once it is installed.
PRESIM_API void answer_process_group(GroupQuery query);
// False outside of the framework's collectives.
PRESIM_API bool current_process_group(ProcessGroup* out);

}  // namespace presim
