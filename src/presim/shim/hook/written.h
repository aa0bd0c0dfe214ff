// The arguments that an extension's operator writes, by its schema.
#pragma once
#include <ATen/record_function.h>

#include <vector>

namespace presim::hook {

struct Written {
  size_t argument;
  bool overwritten;  // and not read before
};

// For operators that return nothing; empty for PyTorch's own (aten) and those without a schema.
const std::vector<Written>& written_arguments(const at::RecordFunction& fn);

}  // namespace presim::hook
