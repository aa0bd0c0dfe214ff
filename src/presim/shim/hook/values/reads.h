// Reports device values that the program reads, and fills unknown ones from a policy.
#pragma once
#include <ATen/core/Tensor.h>

#include "operator_table.h"

namespace presim::hook::values {

// The program reads a device value: the reading operator, the value's origin (core/values.h), its first bytes.
using OnRead = void (*)(const char* op, int32_t origin, int64_t bits);

// Sets the listener; values are computed from the first call on.
void listen(OnRead on_read);
bool somebody_listens();

void report(const Operator& op, uint8_t origin, const void* first, size_t bytes);

// An operator reads the tensor; unknown values come from a policy.
void read_tensor(const Operator& op, const at::Tensor& tensor);

}  // namespace presim::hook::values
