// Static facts about each operator: whether the CPU can compute it, what it writes, and its policy otherwise.
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

// The policy for an operator's small results that cannot be computed.
enum class Rule : uint8_t {
  Number,   // finite floats, integers 0, booleans false
  Dropout,  // the same, but masks stay unknown: they are large, and only backward reads them
  True,     // all, isfinite: nothing unusual
  Finite,   // no overflow
  Loss,
  Norm,
  Indices,  // topk, sort, argmax, multinomial: of experts or of a vocabulary
};

enum class Treatment : uint8_t {
  Ignore,      // writes nothing, or consists of operators that are observed themselves
  Evaluate,    // computed on the CPU if its inputs are known
  Answer,      // only a policy provides values
  ReadScalar,  // the program reads one element
  Copy,        // evaluated; the program reads a copy to the host
  Coalesce,    // only how many different indices there are is computed
};

struct Written {
  uint8_t argument;
  bool overwrites;  // its previous content does not matter
  int only_if = -1; // argument that says whether it is written at all  // argument that decides whether it is written
};

struct Operator {
  std::string name;
  std::optional<c10::OperatorHandle> handle;
  std::optional<c10::OperatorHandle> computed_by;  // the CPU's operator: the same one or a substitute
  const StandIn* stand_in = nullptr;
  Treatment treatment = Treatment::Ignore;
  Rule rule = Rule::Number;
  Bounded bounded = Bounded::No;
  bool counts = false;  // its host code reads a count back while it runs
  bool random = false;
  int dim = -1, reduction = -1, target = -1, training = -1;  // positions of the arguments with these names
  size_t arguments = 0;
  std::vector<Written> written;
  std::atomic<int> failures{0};  // of the CPU kernel
};

Operator& operator_of(const at::RecordFunction& fn);

}  // namespace presim::hook::values
