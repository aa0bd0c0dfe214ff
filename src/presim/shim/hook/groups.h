// The members of the process group of the current thread's PyTorch collective.
#pragma once
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <cstdint>
#include <vector>

namespace presim::hook {

// Empty if unknown.
std::vector<int64_t> group_ranks(const torch::ParamCommsDebugInfo& info);
// Number of groups with the same ranks that this rank created before.
int group_ordinal(const torch::ParamCommsDebugInfo& info);

// Enables queries from the NCCL library (process_group.h).
void install_process_group_query();

}  // namespace presim::hook
