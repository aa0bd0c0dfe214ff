// Who is in the process group of PyTorch's collective that the current thread is in.
#pragma once
#include <torch/csrc/distributed/c10d/ParamCommsUtils.hpp>

#include <cstdint>
#include <vector>

namespace presim::hook {

// Empty where PyTorch does not say and nobody told.
std::vector<int64_t> group_ranks(const torch::ParamCommsDebugInfo& info);

// NCCL's libraries may ask from now on (process_group.h).
void install_process_group_query();

}  // namespace presim::hook
