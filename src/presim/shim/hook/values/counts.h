// Operators whose kernels count something and whose host code reads the count, which sets the size of their results:
// nonzero, unique, coalesce.
#pragma once
#include "plan.h"
#include "prepare.h"

namespace presim::hook::values {

// Whether the operator merges equal indices of a sparse tensor. Its argument is no plain tensor.
bool coalesces(std::string_view name);

// Announces the count of a computed operator (core/values.h) until `stop_expecting`.
void expect_computed(Plan& plan);

// Announces the count of an operator whose input is unknown: it follows from what the policies answer for the input.
void expect_assumed(Plan& plan, Inputs inputs);

// Announces how many different indices a sparse tensor has; all of them if they are unknown.
void expect_distinct(Plan& plan, const at::Tensor& sparse);

// Writes the different indices, in order, to the merged tensor.
void write_distinct(Plan& plan, const at::Tensor& merged);

void stop_expecting(Plan& plan);

}  // namespace presim::hook::values
