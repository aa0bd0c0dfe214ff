// Named answers for what cannot be computed, as the user chose them (capture/device_values/policies.py).
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "operator_table.h"

namespace presim::hook::values {

// What a policy needs to know of the call besides its results.
struct Call {
  int64_t choices = 0;  // Rule::Indices: among how many
  int64_t count_along = 0;  // operators that count: the dimension of their first result that is as long
  double terms = 1;     // Rule::Loss: elements that a sum adds up; Rule::Norm: tensors of the list
};

// "key=value" lines; unknown keys are passed over, as Python has checked them.
void configure(const std::string& lines);

// Draws of experts are those of this rank's tokens; ranks that share tokens name one of them. Once drawn it stays.
void route_as(uint64_t rank);

// Writes the policy's answer into a small tensor of the emulated device and marks it known.
void answer(const at::Tensor& tensor, Rule rule, const Call& call);

// The same for memory that a kernel wrote which is no operator of PyTorch's; large tensors are just unknown.
// What it takes is counted by whoever asks.
void answer_written(void* address, int64_t elements, c10::ScalarType type, Rule rule);

}  // namespace presim::hook::values
