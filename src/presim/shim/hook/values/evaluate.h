// Values beside the emulated device: what happens around each operator (evaluate.cpp says how).
#pragma once
#include <ATen/record_function.h>

#include <cstdint>

namespace presim::hook::values {

struct Plan;

// Around each operator, on its thread; nullptr where nothing is left to do when it ends.
Plan* begin(const at::RecordFunction& fn);
void end(const at::RecordFunction& fn, Plan* plan);

}  // namespace presim::hook::values
