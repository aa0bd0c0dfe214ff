// One operator call, prepared so that the CPU can compute it now or at each replay of its graph.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <vector>

#include "operator_table.h"
#include "policies.h"

namespace presim::hook::values {

// A tensor for evaluation: its device address and a CPU tensor over the same memory (tensors.h).
struct Place {
  at::Tensor view;  // undefined if the operator returned none
  bool on_device = false;
};

// An argument that the operator writes.
struct Target {
  Place place;
  size_t argument;
  int item;         // of a list, or -1
  bool overwrites;  // its previous content does not matter
  at::Tensor copy;  // the CPU kernel's output
};

struct Plan {
  Operator* op = nullptr;
  Call call;
  bool evaluates = false;           // whether its tensors are small
  bool captured = false;            // whether it runs at each replay of a graph instead
  bool reads = false;               // whether the program reads its result on the host
  bool computed = false;            // it has run: `arguments` are its results
  bool within_loss = false;         // it is part of an operator that is a loss, which draws the value
  uint8_t origin = 0;               // of the results
  uint64_t seed = 0;                // of its random numbers
  bool expects = false;             // expected_count() is that of this operator
  int64_t outer_count = -1;         // expected_count() before it began
  torch::jit::Stack arguments;      // tensors are host views
  std::vector<at::Tensor> inputs;   // host views of device memory that must be known
  std::vector<Target> targets;

  void clear();
};

// Appends the tensors in `value` to `places`, including undefined ones.
void collect(const c10::IValue& value, std::vector<Place>& places);

// The greatest origin of the inputs; kNobody if one is unknown.
uint8_t origin_of_inputs(const Plan& plan);

// Makes the CPU kernel write into copies, because inner operators may also write the arguments.
void copy_targets(Plan& plan);

// Runs the operator's CPU kernel; false if that is not possible.
bool compute(Plan& plan);

// Copies the results to the outputs and written arguments; false if the shapes differ from the device's.
bool write_results(Plan& plan, const std::vector<Place>& outputs);

// Whether the policy for losses decides the result.
bool is_loss(const Plan& plan);

// Lets the policy decide a loss that depends on unknown values, even where its own operators have answers for these.
void answer_loss(const Plan& plan, const std::vector<Place>& outputs);

// Fills each unknown small output and written argument from its policy.
void answer_unknown(const Plan& plan, const std::vector<Place>& outputs);

}  // namespace presim::hook::values
