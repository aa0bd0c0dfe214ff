// Policies for values that cannot be computed, as chosen by the user (capture/device_values/policies.py).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "operator_table.h"

namespace presim::hook::values {

// Facts about the call that a policy needs besides its results.
struct Call {
  int64_t choices = 0;  // Rule::Indices: number of choices
  int64_t count_along = 0;  // operators that count: the dimension of their first result with that length
  double terms = 1;     // Rule::Loss: elements in a sum; Rule::Norm: tensors in the list
};

// "key=value" lines; unknown keys are ignored, because Python has checked them. With lowest_rank=R, losses, numbers,
// tokens and experts differ between ranks: losses and numbers of R are low, those of others high, so that comparisons
// turn out differently. Norms and overflow checks do not differ, because ranks that share gradients agree on them.
void configure(const std::string& lines);

// Expert choices are drawn for this rank's tokens; ranks that share tokens name one of them. Fixed after the first
// draw.
void route_as(uint64_t rank);

// Writes the policy's values into a small tensor of the emulated device and marks it known.
void answer(const at::Tensor& tensor, Rule rule, const Call& call);

// The same for memory written by a kernel outside PyTorch's operators; large tensors become unknown. The caller
// accounts for its time.
// A kernel outside PyTorch's operators wrote which `taken` of `choices` experts each row goes to, as a map of booleans.
void answer_route_map(void* address, int64_t rows, int64_t choices, int64_t taken);
void answer_written(void* address, int64_t elements, c10::ScalarType type, Rule rule);

}  // namespace presim::hook::values
