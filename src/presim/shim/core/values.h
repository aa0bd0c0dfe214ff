// Device memory with known values, and their origin.
//
// Kernels compute nothing here, so most memory has no meaning. Known memory (copied from the host, filled, computed by
// the operator hook, supplied by a policy) is recorded by address. All other memory is unknown.
#pragma once
#include <cstddef>
#include <cstdint>

#include "recorder.h"

namespace presim {

// Origin of a value. Several origins combine to the greatest. capture/device_values/policies.py has the same numbers.
enum Origin : uint8_t {
  kNobody = 0,       // unknown
  kComputed = 1,      // computed from known values only
  kZero = 2,          // policy: unknown integers and booleans
  kNumber = 3,        // policy: unknown floats
  kFinite = 4,        // policy: nothing overflows
  kGradientNorm = 5,  // policy: norms of unknown values
  kLoss = 6,          // policy: losses
  kSampling = 7,      // policy: the next token
  kRouting = 8,       // policy: which expert
};

PRESIM_API void know(const void* address, size_t bytes, uint8_t origin);
PRESIM_API void forget(const void* address, size_t bytes);
// kNobody if any of these bytes is unknown, else the greatest origin.
PRESIM_API uint8_t origin_of(const void* address, size_t bytes);
// Whether all of it is known now. Does not wait for data from other ranks.
PRESIM_API bool known(const void* address, size_t bytes);
// The greatest origin of the known bytes; kNobody if none is known.
PRESIM_API uint8_t origin_within(const void* address, size_t bytes);
// `to` was written from `from`, byte by byte or from a part of it.
PRESIM_API void know_as(const void* to, size_t to_bytes, const void* from, size_t from_bytes);

// The count for the current operator, if its kernels count something and its host code reads the count (nonzero,
// unique); otherwise -1.
PRESIM_API int64_t& expected_count();

// All of it is device memory.
PRESIM_API bool mapped(const void* address, size_t bytes);

// Whether this stream is captured into a graph. Adds an action for each replay, in order. `drop` frees `data` when the
// graph is destroyed.
PRESIM_API bool captures(void* stream);
PRESIM_API bool at_replay(void* stream, void (*run)(void*), void* data, void (*drop)(void*));

}  // namespace presim
