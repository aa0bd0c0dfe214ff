// Values beside the emulated device; see evaluate.cpp.
#pragma once
#include <ATen/record_function.h>

#include <cstdint>

namespace presim::hook::values {

struct Plan;

// The program reads a value of the device: which operator reads, who gave the value (core/values.h), its first bytes.
using OnRead = void (*)(const char* op, int32_t origin, int64_t bits);

void enable(OnRead on_read);

// Around each operator, on its thread; nullptr where nothing is left to do when it ends.
Plan* begin(const at::RecordFunction& fn);
void end(const at::RecordFunction& fn, Plan* plan);

}  // namespace presim::hook::values
