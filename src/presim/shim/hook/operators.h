// The operator callback; see operators.cpp.
#pragma once
#include <cstdint>

namespace presim::hook {

void install_operator_callback();
int32_t current_range();  // descriptor id of the innermost record_function range on this thread, or -1
bool in_backward();       // this thread is running an autograd node

}  // namespace presim::hook
