// Indices that the program computed and that lie outside the table they are for: a GPU would end the process.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <string_view>

namespace presim::hook::values {

enum class Bounded : uint8_t {
  No,
  Rows,          // (table, index): rows of the first argument
  Along,         // (table, dim, index)
  AlongFromEnd,  // likewise, and from the end where it is negative
  Classes,       // (scores, target, …, ignore_index): the second dimension but for what is ignored
  Elements,      // (table, index): of the flat table, and from the end where it is negative
  Anywhere,      // (table, list of indices): each along its dimension, and from the end where it is negative
};

Bounded bounded(std::string_view name);
void check_bounds(Bounded kind, std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

}  // namespace presim::hook::values
