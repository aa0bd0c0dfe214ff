// Computes values beside the emulated device, around each operator (see evaluate.cpp).
#pragma once
#include <ATen/record_function.h>

#include <cstdint>

namespace presim::hook::values {

struct Plan;

// Called around each operator, on its thread; nullptr if nothing remains to be done when it ends.
Plan* begin(const at::RecordFunction& fn);
void end(const at::RecordFunction& fn, Plan* plan);

}  // namespace presim::hook::values
