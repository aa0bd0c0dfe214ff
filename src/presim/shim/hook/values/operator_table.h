// What is known of each operator beforehand: whether the CPU can compute it, what it writes, who answers for it else.
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bounds.h"
#include "stand_ins.h"

namespace presim::hook::values {

// Which policy answers for an operator's small results when they cannot be computed.
enum class Rule : uint8_t {
  Number,   // floats that are finite, integers 0, booleans false
  Dropout,  // the same, but nobody answers for a mask: as large as what is dropped from, and read by the backward pass only
  True,     // all, isfinite: nothing unusual
  Finite,   // no overflow
  Loss,
  Norm,
  Indices,  // topk, sort, argmax, multinomial: of experts, or of a vocabulary
};

enum class Treatment : uint8_t {
  Ignore,      // writes nothing, or consists of operators that are seen themselves
  Evaluate,    // the CPU computes it where its inputs are known
  Answer,      // only a policy can
  ReadScalar,  // the program reads one element
  Copy,        // evaluated; the program reads what goes to the host
};

struct Written {
  uint8_t argument;
  bool overwrites;  // what it held before does not matter
  int only_if = -1; // argument that says whether it is written at all
};

struct Operator {
  std::string name;
  std::optional<c10::OperatorHandle> handle;
  std::optional<c10::OperatorHandle> computed_by;  // the CPU's operator: the same, or what stands in for it
  const StandIn* stand_in = nullptr;
  Treatment treatment = Treatment::Ignore;
  Rule rule = Rule::Number;
  Bounded bounded = Bounded::No;
  bool counts = false;  // its host code reads a count back while it runs
  bool random = false;
  int dim = -1, reduction = -1, target = -1, training = -1;  // places of the arguments of these names
  size_t arguments = 0;
  std::vector<Written> written;
  std::atomic<int> failures{0};  // of the CPU's kernel
};

Operator& operator_of(const at::RecordFunction& fn);

}  // namespace presim::hook::values
