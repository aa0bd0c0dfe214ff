// CUDA-only operators, mapped to CPU operators that compute the same.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <optional>
#include <string_view>

namespace presim::hook::values {

struct StandIn {
  const char* name;  // the operator's name without "aten::"
  const char* overload;
  const char* computed_by;  // the CPU operator, without overload
  void (*adapt)(torch::jit::Stack& arguments);  // to the CPU operator's arguments; written tensors stay the same
};

// nullptr if there is none.
const StandIn* stand_in_for(std::string_view name, std::string_view overload);

c10::OperatorHandle handle_of(const StandIn& stand_in);

}  // namespace presim::hook::values
