// Which arguments an operator of an extension writes, by its schema.
#pragma once
#include <ATen/record_function.h>

#include <vector>

namespace presim::hook {

struct Written {
  size_t argument;
  bool overwritten;  // and not read before
};

// Of operators that return nothing; PyTorch's own (aten) and those without a schema have none.
const std::vector<Written>& written_arguments(const at::RecordFunction& fn);

}  // namespace presim::hook
