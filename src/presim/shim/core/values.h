// Which device memory holds a value, and who says so.
//
// Kernels compute nothing here, so most memory means nothing. What does (copied from the host, filled, computed by the
// operator hook, answered by a policy) is known by address; everything else is not, and says so when it is asked.
#pragma once
#include <cstddef>
#include <cstdint>

#include "recorder.h"

namespace presim {

// Who gave a value. Of what is computed from several, the greatest names it. capture/device_values/policies.py has the same numbers.
enum Origin : uint8_t {
  kNobody = 0,       // nobody
  kComputed = 1,      // the program, through and through
  kZero = 2,          // policy: integers and booleans that nobody knows
  kNumber = 3,        // policy: floats that nobody knows
  kFinite = 4,        // policy: nothing overflows
  kGradientNorm = 5,  // policy: norms of what nobody knows
  kLoss = 6,          // policy: losses
  kSampling = 7,      // policy: the next token
  kRouting = 8,       // policy: which expert
};

PRESIM_API void know(const void* address, size_t bytes, uint8_t origin);
PRESIM_API void forget(const void* address, size_t bytes);
// kNobody where any of these bytes is; else the greatest origin among them.
PRESIM_API uint8_t origin_of(const void* address, size_t bytes);
// Whether all of it holds values by now; what other ranks are to send is not waited for.
PRESIM_API bool known(const void* address, size_t bytes);
// The greatest origin among those of these bytes that have one; kNobody where none has.
PRESIM_API uint8_t origin_within(const void* address, size_t bytes);
// `to` was written from `from`, byte by byte or from a part of it.
PRESIM_API void know_as(const void* to, size_t to_bytes, const void* from, size_t from_bytes);

// While an operator runs whose kernels count something and whose host code reads the count back (nonzero, unique), this
// thread's answer to it; otherwise -1.
PRESIM_API int64_t& expected_count();

// All of it is device memory.
PRESIM_API bool mapped(const void* address, size_t bytes);

// Whether this stream is being captured into a graph; and something to do at each replay, in its place in the order.
// `drop` frees `data` when the graph is gone.
PRESIM_API bool captures(void* stream);
PRESIM_API bool at_replay(void* stream, void (*run)(void*), void* data, void (*drop)(void*));

}  // namespace presim
