// The memory behind a tensor: whether its values can be known, whether they are, and a CPU tensor over it.
//
// A device address is a host address here (core/memory.h), so a CPU tensor over the same bytes reads and writes what
// the emulated device holds.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace presim::hook::values {

constexpr int64_t kFloatBytes = 65536;  // as much as core/transfer.h copies for real
// Integers and booleans steer programs: routing, positions, masks. The largest are maps of a micro-batch's tokens times
// its experts (32,768 x 128 of Nemotron 3 Nano), 4 MiB as booleans and 32 as positions; the CPU takes milliseconds for one.
constexpr int64_t kIntegerElements = int64_t(4) << 20;

// Strided memory of its own: no wrapper, no sparse or nested tensor, nothing lazily conjugated.
bool plain(const at::Tensor& tensor);
// Few enough elements to be computed.
bool small(bool integral, int64_t elements, int64_t element_bytes);
bool small(const at::Tensor& tensor);

// Of device memory, as core/values.h says it; the tensor may be a host view of it.
uint8_t origin(const at::Tensor& tensor);
void know(const at::Tensor& tensor, uint8_t origin);
void forget(const at::Tensor& tensor);

// All of it is device memory that still exists.
bool exists(const at::Tensor& tensor);

// A CPU tensor over the same memory; it keeps nothing alive.
at::Tensor host_view(const at::Tensor& tensor);

}  // namespace presim::hook::values
