// The memory behind a tensor: whether values can be and are known, and a CPU tensor over it.
//
// Device addresses are host addresses (core/memory.h), so a CPU tensor over the same bytes accesses the emulated
// device's memory.
#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace presim::hook::values {

constexpr int64_t kFloatBytes = 65536;  // the limit of real copies in core/transfer.h
// Integers and booleans control programs: routing, positions, masks. The largest are maps of a micro-batch's tokens to
// experts (32,768 x 128 in Nemotron 3 Nano), 4 MiB as booleans and 32 MiB as positions; the CPU takes milliseconds for
// one.
constexpr int64_t kIntegerElements = int64_t(4) << 20;

// A strided tensor with its own memory: no wrapper, sparse, nested or lazily conjugated tensor.
bool plain(const at::Tensor& tensor);
// Whether there are few enough elements to compute.
bool small(bool integral, int64_t elements, int64_t element_bytes);
bool small(const at::Tensor& tensor);

// The origin of device memory (core/values.h); the tensor may be a host view of it.
uint8_t origin(const at::Tensor& tensor);
void know(const at::Tensor& tensor, uint8_t origin);
void forget(const at::Tensor& tensor);

// Whether all of it is device memory that still exists.
bool exists(const at::Tensor& tensor);

// A CPU tensor over the same memory; it does not keep it alive.
at::Tensor host_view(const at::Tensor& tensor);

}  // namespace presim::hook::values
