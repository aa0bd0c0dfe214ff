// One call of an operator, prepared so that the CPU can do it: now, or at each replay of the graph that holds it.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <vector>

#include "operator_table.h"
#include "policies.h"

namespace presim::hook::values {

// A tensor as evaluation sees it: where it lies on the device, a CPU tensor over the same memory (tensors.h).
struct Place {
  at::Tensor view;  // undefined where the operator returned none
  bool on_device = false;
};

// An argument that the operator writes.
struct Target {
  Place place;
  size_t argument;
  int item;         // of a list, or -1
  bool overwrites;  // what it held does not matter
  at::Tensor copy;  // what the CPU's kernel writes into
};

struct Plan {
  Operator* op = nullptr;
  Call call;
  bool evaluates = false;           // its tensors are small
  bool captured = false;            // runs at each replay of a graph instead
  bool reads = false;               // the program reads its result on the host
  bool computed = false;            // it has run: `arguments` are its results
  uint8_t origin = 0;               // of the results
  uint64_t seed = 0;                // of what it draws
  int64_t outer_count = -1;         // expected_count() before it began
  torch::jit::Stack arguments;      // tensors are host views
  std::vector<at::Tensor> inputs;   // host views of device memory that has to be known
  std::vector<Target> targets;

  void clear();
};

// Puts what `value` holds of tensors into `places`, undefined ones included.
void collect(const c10::IValue& value, std::vector<Place>& places);

// The greatest origin of the inputs; kNobody where one is not known.
uint8_t origin_of_inputs(const Plan& plan);

// Has the CPU's kernel write into copies: operators within the operator may write its arguments as well.
void copy_targets(Plan& plan);

// Runs the operator's CPU kernel; false where it cannot.
bool compute(Plan& plan);

// Writes the results to the outputs and the written arguments; false where the shapes are not the device's.
bool write_results(Plan& plan, const std::vector<Place>& outputs);

// The policy's answer to each small output and written argument that nobody knows.
void answer_unknown(const Plan& plan, const std::vector<Place>& outputs);

}  // namespace presim::hook::values
