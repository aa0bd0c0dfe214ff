// From an operator's inputs to a plan with arguments for the CPU kernel.
#pragma once
#include <ATen/core/ivalue.h>

#include "plan.h"

namespace presim::hook::values {

using Inputs = c10::ArrayRef<const c10::IValue>;

// A summary of an operator's inputs.
struct Seen {
  bool device = false;   // something is or will be on the device
  bool wrapped = false;  // a tensor without its own memory, whose operators are observed inside
  bool all_small = true;
};

Seen see(Inputs inputs);

// Fills in what the policies need: the number of choices, the number of terms of a loss.
void prepare_call(Plan& plan, Inputs inputs);

// Adds the written arguments; if the call is not evaluated, those on the device become unknown.
void add_targets(Plan& plan, Inputs inputs);

// Adds all arguments as host views; `plan.inputs` gets those that must be known.
void add_arguments(Plan& plan, Inputs inputs);

// The program's own seed and offset: repeating a draw gives the same numbers.
uint64_t seed_of_draw(Inputs inputs, bool captured);

}  // namespace presim::hook::values
