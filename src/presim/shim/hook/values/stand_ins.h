// Operators that only CUDA has, as the CPU's operators that compute the same.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string_view>

namespace presim::hook::values {

struct StandIn {
  const char* name;  // of the operator, without "aten::"
  const char* overload;
  const char* computed_by;  // the CPU's, of no overload
  void (*adapt)(torch::jit::Stack& arguments);  // to those of the CPU's; tensors that are written stay the same ones
};

// None where nothing else computes it.
const StandIn* stand_in_for(std::string_view name, std::string_view overload);

c10::OperatorHandle handle_of(const StandIn& stand_in);

}  // namespace presim::hook::values
