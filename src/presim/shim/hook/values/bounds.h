// Detects computed indices outside their table, which would end the process on a GPU.
#pragma once
#include <ATen/core/ivalue.h>
#include <c10/util/ArrayRef.h>

#include <string_view>

namespace presim::hook::values {

enum class Bounded : uint8_t {
  No,
  Rows,          // (table, index): rows of the first argument
  Along,         // (table, dim, index)
  AlongFromEnd,  // likewise, negative ones from the end
  Classes,       // (scores, target, …, ignore_index): the second dimension, except for ignored labels
  Elements,      // (table, index): of the flat table, negative ones from the end
  Anywhere,      // (table, list of indices): each along its dimension, negative ones from the end
};

Bounded bounded(std::string_view name);
void check_bounds(Bounded kind, std::string_view name, c10::ArrayRef<const c10::IValue> inputs);

}  // namespace presim::hook::values
