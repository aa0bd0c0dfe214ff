// From the inputs of an operator to a plan: what it is given, and arguments as the CPU's kernel takes them.
#pragma once
#include <ATen/core/ivalue.h>

#include "plan.h"

namespace presim::hook::values {

using Inputs = c10::ArrayRef<const c10::IValue>;

// What there is among an operator's inputs.
struct Seen {
  bool device = false;   // something lies on it, or shall
  bool wrapped = false;  // a tensor without memory of its own: its operators come again, inside
  bool all_small = true;
};

Seen see(Inputs inputs);

// What the policies need to know of the call: how many choices there are, how many terms a loss has.
void prepare_call(Plan& plan, Inputs inputs);

// The arguments that the operator writes; those on the device are unknown from now on where it is not evaluated.
void add_targets(Plan& plan, Inputs inputs);

// All arguments as host views; `plan.inputs` gets those that have to be known.
void add_arguments(Plan& plan, Inputs inputs);

// The program's own seed, and where it is in the sequence: the same draw again gives the same numbers.
uint64_t seed_of_draw(Inputs inputs, bool captured);

}  // namespace presim::hook::values
