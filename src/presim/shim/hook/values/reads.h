// Values of the device that the program reads: told to whoever listens, answered where nobody knows them.
#pragma once
#include <ATen/core/Tensor.h>

#include "operator_table.h"

namespace presim::hook::values {

// The program reads a value of the device: which operator reads, who gave the value (core/values.h), its first bytes.
using OnRead = void (*)(const char* op, int32_t origin, int64_t bits);

// Who listens from now on; values are computed from the first time on.
void listen(OnRead on_read);
bool somebody_listens();

void report(const Operator& op, uint8_t origin, const void* first, size_t bytes);

// The operator reads the tensor; a policy answers where its value is unknown.
void read_tensor(const Operator& op, const at::Tensor& tensor);

}  // namespace presim::hook::values
