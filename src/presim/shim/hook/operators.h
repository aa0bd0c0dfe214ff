// The operator callback; see operators.cpp.
#pragma once
#include <cstddef>
#include <cstdint>

namespace presim::hook {

void install_operator_callback();
int32_t current_range();  // descriptor id of the innermost record_function range on this thread, or -1

// Called around a launch outside PyTorch's operators: its records get the operator `id`.
size_t launch_begins();
void launch_ends(size_t first, int32_t id);

bool in_backward();       // this thread is running an autograd node

}  // namespace presim::hook
